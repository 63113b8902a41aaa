"""Ways to hand messages from one Python process to another, SMQ among them, with one interface.

Each gives two things to make in two processes: something that sends and something that receives.
A receiver blocks until there is a message, or `spins`: then it looks, and there may be none.
iceoryx2's subscribers do not block: they are polled.
"""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple
from uuid import uuid4

Send = Callable[[bytes], object]
Receive = Callable[[], int]
"""Takes what is there and calls back for each message; returns how many there were."""

Take = Callable[[Any], object]
MESSAGES_MAX = 1000  # Taken at once, where a peer can.


class Peer(NamedTuple):
    """`sender()` and `receiver(take)` are called in the process that will use them."""

    name: str
    sender: Callable[[], tuple[Send, Callable[[], object]]]
    receiver: Callable[[Take], Receive]


def _nothing() -> None:
    return None


def queue_peer(*, spins: bool = False) -> Peer:
    """The standard library's."""
    queue: Any = multiprocessing.get_context("fork").Queue()

    def receiver(take: Take) -> Receive:
        def receive() -> int:
            try:
                take(queue.get(block=not spins))
            except Empty:
                return 0
            return 1

        return receive

    return Peer("multiprocessing.Queue", lambda: (queue.put, _nothing), receiver)


def faster_fifo_peer(*, spins: bool = False) -> Peer:
    """A queue in shared memory with a lock; messages are taken many at a time."""
    import faster_fifo  # noqa: PLC0415

    queue = faster_fifo.Queue(max_size_bytes=16 << 20)

    def put(message: bytes) -> None:
        queue.put(message, timeout=60)

    def receiver(take: Take) -> Receive:
        def receive() -> int:
            try:
                messages = queue.get_many(not spins, 60, MESSAGES_MAX)
            except Empty:
                return 0
            for message in messages:
                take(message)
            return len(messages)

        return receive

    return Peer("faster-fifo", lambda: (put, _nothing), receiver)


def zmq_peer(directory: Path, *, spins: bool = False) -> Peer:
    """ZeroMQ over a unix socket."""
    address = f"ipc://{directory}/{uuid4().hex}.sock"

    def sender() -> tuple[Send, Callable[[], object]]:
        import zmq  # noqa: PLC0415

        socket = zmq.Context().socket(zmq.PUSH)
        socket.set_hwm(100_000)
        socket.connect(address)
        return socket.send, lambda: socket.close(linger=60_000)

    def receiver(take: Take) -> Receive:
        import zmq  # noqa: PLC0415

        socket = zmq.Context().socket(zmq.PULL)
        socket.set_hwm(100_000)
        socket.bind(address)

        def receive() -> int:
            try:
                take(socket.recv(zmq.DONTWAIT if spins else 0))
            except zmq.Again:
                return 0
            return 1

        return receive

    return Peer("pyzmq ipc", sender, receiver)


def _until_taken(send: Callable[[Any], int], sample: Any) -> None:  # noqa: ANN401
    """Send until a subscriber has it: iceoryx2 0.10 gives up on a full queue."""
    while send(sample) == 0:
        pass


def iceoryx2_peer(message_bytes: int) -> Peer:
    """Loaned samples of a fixed size; the subscriber polls, and a full queue makes senders wait."""
    import ctypes  # noqa: PLC0415

    import iceoryx2 as iox  # noqa: PLC0415

    iox.set_log_level(iox.LogLevel.Error)
    name, payload = f"bench/{uuid4().hex}", ctypes.c_uint8 * message_bytes

    def service() -> Any:  # noqa: ANN401
        node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        return (
            node,
            node.service_builder(iox.ServiceName.new(name))
            .publish_subscribe(payload)
            .enable_safe_overflow(False)  # noqa: FBT003
            .subscriber_max_buffer_size(1000)
            .open_or_create(),
        )

    def sender() -> tuple[Send, Callable[[], object]]:
        node, opened = service()
        publisher = (
            opened.publisher_builder()
            .backpressure_strategy(iox.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )

        def send(message: bytes) -> None:
            _until_taken(publisher.send_copy, payload.from_buffer_copy(message))

        def close() -> None:
            assert node is not None  # It lives as long as what it has made.

        return send, close

    def receiver(take: Take) -> Receive:
        node, opened = service()
        subscriber = opened.subscriber_builder().create()

        def receive() -> int:
            while (sample := subscriber.receive()) is None:
                assert node is not None
            take(bytes(sample.payload().contents))
            return 1

        return receive

    return Peer("iceoryx2", sender, receiver)


def smq_peer(bootstrap: str, topic: str) -> Peer:
    """SMQ's SDK: one call a message, through the log."""

    def sender() -> tuple[Send, Callable[[], object]]:
        import smq  # noqa: PLC0415

        client = smq.connect(bootstrap)
        assert client.transport == "shared memory"
        producer = client.producer()
        return lambda message: producer.send(topic, message), producer.close

    def receiver(take: Take) -> Receive:
        import smq  # noqa: PLC0415

        consumer = smq.connect(bootstrap).consumer(topic, start="earliest")

        def receive() -> int:
            with consumer.poll(timeout_s=60) as batch:
                for record in batch:
                    take(record.value)
                return len(batch)

        return receive

    return Peer("SMQ", sender, receiver)


def confluent_peer(bootstrap: str, topic: str) -> Peer:
    """librdkafka's Python client on the same broker."""

    def sender() -> tuple[Send, Callable[[], object]]:
        from confluent_kafka import Producer  # noqa: PLC0415

        producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000, "batch.size": 1_000_000,
        })  # fmt: skip

        def send(message: bytes) -> None:
            while True:
                try:
                    return producer.produce(topic, message)
                except BufferError:
                    producer.poll(0.01)

        return send, lambda: producer.flush(60)

    def receiver(take: Take) -> Receive:
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
        consumer.assign([TopicPartition(topic, 0, 0)])

        def receive() -> int:
            messages = consumer.consume(MESSAGES_MAX, timeout=1)
            for message in messages:
                take(message.value())
            return len(messages)

        return receive

    return Peer("confluent-kafka", sender, receiver)
