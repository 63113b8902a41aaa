"""The demo's first scene: a producer, a group of three, and two kills.

The producer is librdkafka's idempotent one; Kafka's own partitioner assigns keys. Every flight
carries its row number in a header, and each member records what it read. This shows what was lost
(nothing) and what was read twice (what the killed member had not committed).
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.demo.dataset import FLIGHT_COUNT, encode, rows
from examples.demo.member import TOPIC
from smq.app.process.clock import monotonic_ms
from smq.app.process.program import command, importing

PARTITIONS = 3
MEMBERS = 3
# Enough to keep the broker busy; more would only measure the queue's length.
IN_FLIGHT_MAX = 20_000
CATCH_UP_MS_MAX = 60_000


def create_topics(bootstrap: str, seal_ms: int) -> None:
    """Flights in three partitions, weather and airlines in one."""
    configs = {"smq.seal.ms": str(seal_ms)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, PARTITIONS, 1, config=configs),
        NewTopic("weather", 1, 1, config=configs),
        NewTopic("airlines", 1, 1, config=configs),
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)


@dataclass
class Sending:
    """A producer, and the outcome of its messages."""

    bootstrap: str
    records: int = 0
    payload_bytes: int = 0
    acknowledged: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def send(self, topic: str, key: bytes, value: bytes, row: int) -> None:
        """Send one record; waits while too many are in flight."""
        while len(self.producer) >= IN_FLIGHT_MAX:
            self.producer.poll(0.01)
        headers: dict[str, str | bytes | None] = {"row": row.to_bytes(4, "little")}
        self.producer.produce(topic, value, key, headers=headers, on_delivery=self._delivered)
        self.records += 1
        self.payload_bytes += len(value)
        if row % 256 == 0:
            self.producer.poll(0)

    def finish(self) -> None:
        """Wait for every acknowledgement."""
        if self.producer.flush(60):
            raise SystemExit("some records were not acknowledged in 60 s")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"a record was not acknowledged: {error}")
        self.acknowledged += 1
        self.latencies_s.append(message.latency() or 0.0)


def send_file(sending: Sending, file: Path, topic: str, key: str) -> None:
    """Send every row of a CSV file as a record."""
    for number, row in enumerate(rows(file)):
        sending.send(topic, str(row[key]).encode(), encode(row), number)


def send_flights(sending: Sending, file: Path, at_percent: Callable[[int], None]) -> None:
    """Send every flight; `at_percent` is called at each whole percent."""
    percent = 0
    for number, row in enumerate(rows(file)):
        sending.send(TOPIC, str(row["carrier"]).encode(), encode(row), number)
        if number * 100 // FLIGHT_COUNT > percent:
            percent = number * 100 // FLIGHT_COUNT
            at_percent(percent)


class Group:
    """Three members, each a process with a file of what it read."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.files = [directory / f"member-{i}.ids" for i in range(1, MEMBERS + 1)]
        member = command("examples.demo.member", bootstrap)
        self._members = [
            subprocess.Popen([*member, str(file)], env=importing())  # noqa: S603  (ourselves)
            for file in self.files
        ]

    def kill_one(self) -> int:
        """SIGKILL the first member; returns its pid."""
        self._members[0].kill()
        self._members[0].wait()
        return self._members[0].pid

    def seen(self) -> tuple[int, int]:
        """How many flights were read, and how many repeated reads there were."""
        read = [np.fromfile(file, "<u4") for file in self.files if file.exists()]
        counts = np.bincount(np.concatenate(read), minlength=FLIGHT_COUNT)
        return int((counts > 0).sum()), int((counts - 1).clip(0).sum())

    def wait_all_read(self, poll: Callable[[], object]) -> tuple[int, int]:
        """Wait until every flight was read; returns `seen` at that time."""
        deadline_ms = monotonic_ms() + CATCH_UP_MS_MAX
        while self.seen()[0] < FLIGHT_COUNT and monotonic_ms() < deadline_ms:
            poll()
        return self.seen()

    def stop(self) -> None:
        """Stop every member that still runs."""
        for member in self._members:
            member.terminate()
        for member in self._members:
            member.wait()
