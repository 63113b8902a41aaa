"""Records that the tests write to topics and read back, through a Kafka client."""

import time
from collections.abc import Callable, Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SECONDS_MAX = 30
POLL_SECONDS = 0.2
PARTITIONS = 3


def create(bootstrap: str, *names: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        made.result(SECONDS_MAX)


def send(bootstrap: str, topic: str, values: Iterable[str], key: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value.encode(), key)
    assert producer.flush(SECONDS_MAX) == 0


class Reader:
    """All of a topic from its beginning, committed records only, as they come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        known = self._consumer.list_topics(topic, SECONDS_MAX).topics[topic].partitions
        starts = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in known]
        self._consumer.assign(starts)
        self.found: list[tuple[str, str]] = []  # Keys and values.

    def poll(self) -> None:
        """Add what is there, or nothing."""
        for message in self._consumer.consume(500, POLL_SECONDS):
            assert message.error() is None, message.error()
            key, value = message.key() or b"", message.value() or b""
            self.found.append((bytes(key).decode(), bytes(value).decode()))

    def poll_until(self, reached: Callable[[], bool], seconds_max: float, words: str) -> None:
        """Raises AssertionError with `words` when it takes too long."""
        deadline = time.monotonic() + seconds_max
        while not reached():
            assert time.monotonic() < deadline, f"{words} after {len(self.found)} records"
            self.poll()

    def poll_to_the_end(self) -> None:
        """What is there at this moment."""
        for place in self._consumer.assignment():
            _, high = self._consumer.get_watermark_offsets(place, SECONDS_MAX)
            deadline = time.monotonic() + SECONDS_MAX
            while max(0, self._consumer.position([place])[0].offset) < high:
                assert time.monotonic() < deadline, f"{place} has no end"
                self.poll()

    def close(self) -> None:
        self._consumer.close()
