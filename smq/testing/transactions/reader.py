"""Readers of committed records, of both clients, that keep everything they read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaError, TopicPartition

import smq
from smq.app.process.clock import monotonic_ms
from smq.testing.transactions.history import Copy, Seen

READ_AT_ONCE, WAIT_SECONDS = 2000, 0.2
_OF_CONTENT = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG}  # noqa: SLF001


class ConfluentReader:
    """With librdkafka."""

    name = "confluent"

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self.seen: list[Seen] = []
        self._ended: set[tuple[str, int]] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        found = self._consumer.list_topics(timeout=60).topics
        self._places = [(topic, each) for topic in topics for each in found[topic].partitions]
        self._consumer.assign([TopicPartition(*place, 0) for place in self._places])

    def read(self) -> None:
        """Read new records."""
        for message in self._consumer.consume(READ_AT_ONCE, WAIT_SECONDS):
            error, topic, partition = message.error(), message.topic(), message.partition()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    self._ended.add((str(topic), int(partition or 0)))
                elif error.code() in _OF_CONTENT:
                    raise AssertionError(f"a reader gets the error: {error}")
                continue  # Else a broker that is away for a moment.
            value, offset = message.value(), message.offset()
            assert isinstance(value, bytes)
            assert offset is not None
            self.seen.append(Seen(str(topic), int(partition or 0), offset, Copy.unpacked(value)))

    def has_all(self) -> bool:
        """Whether it has been at the end of each partition."""
        return self._ended == set(self._places)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


class SmqReader:
    """With SMQ's SDK: from shared memory where nothing was aborted."""

    name = "smq"

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self.seen: list[Seen] = []
        self._client = smq.connect(bootstrap)
        self._consumer = self._client.consumer(
            list(topics), start="earliest", isolation_level="read_committed"
        )

    def read(self) -> None:
        """Read new records."""
        with suppress(smq.BrokerUnavailable), self._consumer.poll(WAIT_SECONDS) as batch:
            for record in batch:
                copy = Copy.unpacked(bytes(record.value or b""))
                self.seen.append(Seen(record.topic, record.partition, record.offset, copy))

    def has_all(self) -> bool:
        """Whether nothing is left to read."""
        return not any(self._consumer.lag().values())

    def close(self) -> None:
        """Leave."""
        self._client.close()


Reader: TypeAlias = ConfluentReader | SmqReader


def read_all(reader: Reader, quiet_ms_max: int) -> None:
    """Read up to the end of each partition. Raises TimeoutError."""
    count, since_ms = 0, monotonic_ms()
    while not reader.has_all():
        reader.read()
        if len(reader.seen) > count:
            count, since_ms = len(reader.seen), monotonic_ms()
        if monotonic_ms() - since_ms > quiet_ms_max:
            raise TimeoutError(f"a reader of {reader.name} stands still after {count} records")


@contextmanager
def reading_along(readers: Sequence[Reader]) -> Iterator[Callable[[], None]]:
    """Read in threads; the block gets a check that raises a thread's error."""
    met: list[BaseException] = []
    stop = Event()

    def follow(reader: Reader) -> None:
        try:
            while not stop.is_set():
                reader.read()
        except BaseException as failure:  # noqa: BLE001  (carried over to the main thread)
            met.append(failure)

    def check() -> None:
        if met:
            raise met[0]

    threads = [Thread(target=follow, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield check
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    check()
