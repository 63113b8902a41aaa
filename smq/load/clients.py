"""A common interface to producers and consumers: librdkafka, or SMQ's SDK.

A message carries the nanosecond at which it was due, in its first eight bytes:

    0           8                messageSize
    | due_ns i64 | payload …     |              little-endian; the clock is this machine's

The SDK reports delivery and failure of each message. With librdkafka, messages without a callback
count as delivered when they have left its queue: a callback for each would be the bottleneck. For
both, the broker's offsets at the end are authoritative.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from smq.app.process.clock import monotonic_ns
from smq.load.logins import librdkafka_settings, way_of_librdkafka
from smq.load.workload import KAFKA, REFERENCE, STAMP_BYTES, Workload

STAMP = struct.Struct("<q")
TAKE_MESSAGES_MAX = 1000
QUEUE_BYTES = 256 << 20
QUEUE_MESSAGES = 200_000
OVERHEAD_BYTES = 4096  # Per batch of one message, generously.
BATCH_BYTES = 1_000_000
JOINED_S_MAX = 10.0  # A member that has no partition by then gets none.
Settings = Mapping[str, Any]
NO_LOGIN: Settings = {}

PRODUCER_SETTINGS: Settings = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 1,
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": QUEUE_MESSAGES,
    "queue.buffering.max.kbytes": QUEUE_BYTES // 1024,
}
CONSUMER_SETTINGS: Settings = {
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 8 << 20,
    "queued.max.messages.kbytes": 64 * 1024,
    "heartbeat.interval.ms": 500,
    "partition.assignment.strategy": "range",
}

Delivered = Callable[[int, bool], object]
"""Called with when the message was due, and whether it was acknowledged."""


class QueueFull(Exception):
    """The client accepts no more messages until some are acknowledged."""


class LoadProducer(Protocol):
    """Sends stamped messages of one size to one topic."""

    failed: int

    def send(self, due_ns: int, *, told: bool) -> None:
        """Send a message; with `told`, report its outcome. Raises QueueFull."""

    def poll(self, seconds: float) -> None:
        """Wait for outcomes, for at most this long."""

    def unfinished(self) -> int:
        """The number of unacknowledged messages."""

    def finish(self, seconds: float) -> None:
        """Wait until all messages are acknowledged."""

    def close(self) -> None:
        """Disconnect."""


class TakenMessages(NamedTuple):
    """How many messages a consumer received, and the due times of some of them."""

    messages: int
    stamps: Sequence[int]


class LoadConsumer(Protocol):
    """A member of a group that reads one topic."""

    def take(self, seconds: float, every: int) -> TakenMessages:
        """Receive messages for at most `seconds`; returns the stamp of every `every`-th."""

    def assigned_ns(self) -> int:
        """When the group assigned it partitions, perhaps none; 0 before that."""

    def commit(self) -> None:
        """Commit what was received, and wait for the answer."""

    def close(self) -> None:
        """Leave the group."""


class KafkaProducer:
    """librdkafka, idempotent, acks=all."""

    def __init__(
        self,
        bootstrap: str,
        workload: Workload,
        topic: str,
        delivered: Delivered,
        login: Settings = NO_LOGIN,
        **more: Any,  # noqa: ANN401
    ) -> None:
        from confluent_kafka import Producer as Librdkafka  # noqa: PLC0415  (an extra)

        largest = max(BATCH_BYTES, workload.message_size + OVERHEAD_BYTES)
        settings = {
            "bootstrap.servers": bootstrap,
            **PRODUCER_SETTINGS,
            "message.max.bytes": largest,
            **login,
            **workload.producer_config,
            **more,
        }
        self._producer = Librdkafka(settings, logger=_silent())
        self._topic, self._tail, self._delivered = topic, _tail(workload), delivered
        self.failed = 0

    def send(self, due_ns: int, *, told: bool) -> None:
        value = STAMP.pack(due_ns) + self._tail
        try:
            if told:
                self._producer.produce(self._topic, value, on_delivery=partial(self._done, due_ns))
            else:
                self._producer.produce(self._topic, value)
        except BufferError:
            raise QueueFull from None

    def _done(self, due_ns: int, error: object, _message: object) -> None:
        self.failed += error is not None
        self._delivered(due_ns, error is None)

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def unfinished(self) -> int:
        return len(self._producer)

    def finish(self, seconds: float) -> None:
        self._producer.flush(seconds)

    def close(self) -> None:
        self._producer.close()


class KafkaConsumer:
    """librdkafka, a member of a group, from the earliest offset."""

    def __init__(
        self, bootstrap: str, workload: Workload, topic: str, group: str, login: Settings = NO_LOGIN
    ) -> None:
        from confluent_kafka import Consumer as Librdkafka  # noqa: PLC0415  (an extra)

        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            **CONSUMER_SETTINGS,
            "enable.auto.commit": not workload.commits_per_second,
            **login,
            **workload.consumer_config,
        }
        if workload.message_size > CONSUMER_SETTINGS["fetch.message.max.bytes"]:
            size = workload.message_size + OVERHEAD_BYTES
            settings |= {"fetch.message.max.bytes": size, "fetch.max.bytes": 2 * size}
            settings["receive.message.max.bytes"] = 3 * size
        self._consumer = Librdkafka(settings, logger=_silent())
        self._assigned_ns = 0
        self._consumer.subscribe([topic], on_assign=self._assign)

    def _assign(self, _consumer: object, _partitions: object) -> None:
        self._assigned_ns = self._assigned_ns or monotonic_ns()

    def take(self, seconds: float, every: int) -> TakenMessages:
        first = self._consumer.poll(seconds)
        if first is None:
            return TakenMessages(0, ())
        messages = [first, *self._consumer.consume(TAKE_MESSAGES_MAX, 0)]
        good = [each for each in messages if each.error() is None]
        return TakenMessages(len(good), [_stamp(each.value()) for each in good[::every]])

    def assigned_ns(self) -> int:
        return self._assigned_ns

    def commit(self) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415  (as above)

        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001  (its public name)
                raise CommitFailed(str(error)) from error

    def close(self) -> None:
        self._consumer.close()


class CommitFailed(Exception):
    """A commit was refused or unanswered."""


class SdkProducer:
    """SMQ's SDK, one call per message; by reference if the workload says so."""

    def __init__(
        self, bootstrap: str, workload: Workload, topic: str, delivered: Delivered
    ) -> None:
        from smq.client.client import connect  # noqa: PLC0415  (compiles kernels)

        self._client = connect(bootstrap)
        largest = max(2 * workload.message_size, 32 << 20)
        self._producer = self._client.producer(buffer_bytes=largest)
        self._topic, self._tail, self._delivered = topic, _tail(workload), delivered
        self._by_reference = workload.client == REFERENCE
        self._sent = self._finished = self.failed = 0

    def send(self, due_ns: int, *, told: bool) -> None:
        value = STAMP.pack(due_ns) + self._tail
        self._sent += 1
        if self._by_reference:
            sent = self._producer.send_reference(self._topic, value)
        else:
            sent = self._producer.send(self._topic, value)
        sent.add_done_callback(partial(self._done, due_ns, told))

    def _done(self, due_ns: int, told: bool, future: Any) -> None:  # noqa: FBT001, ANN401
        self._finished += 1  # Only the producer's own thread writes it.
        is_good = future.exception() is None
        self.failed += not is_good
        if told:
            self._delivered(due_ns, is_good)

    def poll(self, seconds: float) -> None:
        from smq.app.process.clock import sleep  # noqa: PLC0415

        sleep(seconds)  # Outcomes arrive in the producer's own thread.

    def unfinished(self) -> int:
        return self._sent - self._finished

    def finish(self, seconds: float) -> None:
        from smq.model.errors import BrokerError  # noqa: PLC0415

        try:
            self._producer.flush(seconds)
        except BrokerError:
            return  # Already counted, message by message.

    def close(self) -> None:
        self._client.close()


class SdkConsumer:
    """SMQ's SDK, a member of a group, from the earliest offset."""

    def __init__(self, bootstrap: str, workload: Workload, topic: str, group: str) -> None:
        from smq.client.client import connect  # noqa: PLC0415  (as above)

        self._client = connect(bootstrap)
        commits_s = None if workload.commits_per_second else 5.0
        self._consumer = self._client.consumer(
            topic, group=group, start="earliest", auto_commit_s=commits_s
        )
        self._by_reference = workload.client == REFERENCE
        self._idle_ns = monotonic_ns() + int(JOINED_S_MAX * 1e9)
        self._assigned_ns = 0

    def take(self, seconds: float, every: int) -> TakenMessages:
        with self._consumer.poll(timeout_s=seconds) as batch:
            records = batch.records()
            stamps = [self._stamp_of(each) for each in list(records)[::every]]
            return TakenMessages(len(batch), stamps)

    def _stamp_of(self, record: Any) -> int:  # noqa: ANN401
        return _stamp(record.payload.view() if self._by_reference else record.value)

    def assigned_ns(self) -> int:
        now_ns = monotonic_ns()
        if not self._assigned_ns and (self._consumer.assignment() or now_ns > self._idle_ns):
            self._assigned_ns = now_ns
        return self._assigned_ns

    def commit(self) -> None:
        from smq.model.errors import BrokerError  # noqa: PLC0415

        try:
            self._consumer.commit()
        except BrokerError as error:
            raise CommitFailed(str(error)) from error

    def close(self) -> None:
        self._client.close()


def producer_of(
    bootstrap: str, workload: Workload, topic: str, delivered: Delivered
) -> LoadProducer:
    """A producer for the workload. Raises NoWay, BrokerUnavailable."""
    if workload.client == KAFKA:
        way = way_of_librdkafka(bootstrap)
        login = librdkafka_settings(way.security)
        return KafkaProducer(way.bootstrap, workload, topic, delivered, login)
    return SdkProducer(bootstrap, workload, topic, delivered)


def consumer_of(bootstrap: str, workload: Workload, topic: str, group: str) -> LoadConsumer:
    """A consumer for the workload. Raises NoWay, BrokerUnavailable."""
    if workload.client == KAFKA:
        way = way_of_librdkafka(bootstrap)
        login = librdkafka_settings(way.security)
        return KafkaConsumer(way.bootstrap, workload, topic, group, login)
    return SdkConsumer(bootstrap, workload, topic, group)


def ceiling(workload: Workload, seconds: float) -> dict[str, float]:
    """The rate of librdkafka's producer against its in-process mock broker, a null sink."""
    mock: dict[str, Any] = {"test.mock.num.brokers": 1}
    producer = KafkaProducer("mock", workload, "ceiling", lambda _due_ns, _ok: None, **mock)
    # Its partitions keep 5 MB; the first message waits for topic creation.
    producer.send(monotonic_ns(), told=False)
    producer.finish(10)
    began_ns = monotonic_ns()
    end_ns, sent = began_ns + int(seconds * 1e9), 0
    while monotonic_ns() < end_ns:
        try:
            producer.send(monotonic_ns(), told=False)
            sent += 1
        except QueueFull:
            producer.poll(0.001)
    producer.finish(10)
    taken_s = (monotonic_ns() - began_ns) / 1e9
    rate = (sent - producer.unfinished()) / taken_s
    return {"msg_s": round(rate), "mb_s": round(rate * workload.message_size / 1e6, 1)}


def _tail(workload: Workload) -> bytes:
    """A value's bytes after the stamp: a random part, then zeros."""
    from random import Random  # noqa: PLC0415

    size = workload.message_size - STAMP_BYTES
    noise = int(size * workload.random_bytes_ratio)
    return Random(size).randbytes(noise) + bytes(size - noise)  # noqa: S311  (no secret)


def _stamp(value: Any) -> int:  # noqa: ANN401  (bytes or a view)
    stamp: int = STAMP.unpack_from(value)[0]
    return stamp


def _silent() -> Any:  # noqa: ANN401
    """Silences librdkafka's log: failures are counted, and the run explains them."""
    import logging  # noqa: PLC0415

    logger = logging.getLogger("smq.load.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
