"""Kafka Connect copies a file to a topic and the topic to a file, through restarts and kills."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from smq.testing.processes import Broker
from tests.clients.brokers import running
from tests.frameworks import connect, topics
from tests.frameworks.topics import Reader

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(500)]

LINES = 2000
# The file source reads through a buffer of 2 KiB. After a poll that batch.size ended, it forgets
# what lines the buffer still has until the file grows: one of these fills more than half of it.
LINE_BYTES = 1500
COPY_SECONDS_MAX = 150
POLL_SECONDS = 0.2
# A transaction for each poll of the source: many of them, so that kills meet open ones.
SMALL_TRANSACTIONS = {
    "batch.size": "10",
    "transaction.boundary": "poll",
    "exactly.once.support": "required",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "broker") as started:
        yield started


def lines(first: int, end: int) -> list[str]:
    return [f"{number} ".ljust(LINE_BYTES, ".") for number in range(first, end)]


def add(file: Path, more: list[str]) -> None:
    with file.open("a") as out:
        out.writelines(f"{line}\n" for line in more)


def until_copied(file: Path, wanted: list[str]) -> None:
    """The file has all lines; at least once is what this sink promises."""
    deadline = time.monotonic() + COPY_SECONDS_MAX
    while set(found := _lines_of(file)) != set(wanted):
        assert time.monotonic() < deadline, f"{len(set(found))} of {len(wanted)} lines"
        time.sleep(POLL_SECONDS)


def _lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def until_read(reader: Reader, count: int) -> None:
    reader.poll_until(lambda: len(reader.found) >= count, COPY_SECONDS_MAX, f"not {count}")


def values(reader: Reader) -> list[str]:
    reader.poll_to_the_end()
    return [value for _, value in reader.found]


def test_a_standalone_worker_goes_on_where_it_stopped(broker: Broker, tmp_path: Path) -> None:
    came, went = tmp_path / "in.txt", tmp_path / "out.txt"
    connectors = connect.file_source(came, "lines"), connect.file_sink(went, "lines")
    topics.create(broker.bootstrap, "lines", partitions=1)
    worker = connect.standalone(tmp_path, broker.bootstrap)
    for first in (0, 100):
        add(came, lines(first, first + 100))
        with worker.running(*connectors):
            worker.until_running("source")
            worker.until_running("sink")
            until_copied(went, lines(0, first + 100))
    assert values(Reader(broker.bootstrap, "lines")) == lines(0, 200)
    assert _lines_of(went) == lines(0, 200)


@pytest.mark.parametrize("victim", ["worker", "shard-1", "coordinator"])
def test_a_source_writes_exactly_once_through_kills(
    broker: Broker, tmp_path: Path, victim: str
) -> None:
    came, went = tmp_path / "in.txt", tmp_path / "out.txt"
    topics.create(broker.bootstrap, "lines", partitions=1)
    reader = Reader(broker.bootstrap, "lines")
    worker = connect.distributed(tmp_path, broker.bootstrap)
    add(came, lines(0, LINES))
    with worker.running():
        worker.configure(connect.file_source(came, "lines", **SMALL_TRANSACTIONS))
        worker.configure(connect.file_sink(went, "lines"))
        until_read(reader, LINES // 4)
        if victim == "worker":
            worker.child.kill()
        else:
            broker.kill(victim)
            broker.restart()
            until_read(reader, LINES)
    assert victim != "worker" or len(reader.found) < LINES, "it was killed in the middle"
    add(came, lines(LINES, LINES + 100))
    with worker.running():
        worker.until_running("source")
        worker.until_running("sink")
        until_read(reader, LINES + 100)
        until_copied(went, lines(0, LINES + 100))
        assert worker.ask("GET", "/connectors/source/topics") == {"source": {"topics": ["lines"]}}
    assert values(reader) == lines(0, LINES + 100)


def test_tasks_move_from_a_killed_worker_to_another(broker: Broker, tmp_path: Path) -> None:
    came, went = tmp_path / "in.txt", tmp_path / "out.txt"
    topics.create(broker.bootstrap, "lines", partitions=1)
    first, second = (connect.distributed(tmp_path, broker.bootstrap) for _ in range(2))
    add(came, lines(0, 100))
    with first.running(), second.running():
        first.configure(connect.file_source(came, "lines"))
        first.configure(connect.file_sink(went, "lines"))
        until_copied(went, lines(0, 100))
        first.child.kill()
        add(came, lines(100, 200))
        until_copied(went, lines(0, 200))
        second.until_running("source")
        second.until_running("sink")
        second.ask("PUT", "/connectors/source/stop")
        second.ask("DELETE", "/connectors/source/offsets")
        second.ask("DELETE", "/connectors/sink")
        assert second.ask("GET", "/connectors") == ["source"]
        assert second.ask("GET", "/connectors/source/offsets") == {"offsets": []}
    assert policies(broker) == ["compact"] * 3
    assert values(Reader(broker.bootstrap, "lines")) == lines(0, 200)


def policies(broker: Broker) -> list[str]:
    """The cleanup policies of the topics that the workers made for their state."""
    names = ("connect-configs", "connect-offsets", "connect-status")
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_configs(asked).values()
    return [each.result(topics.SECONDS_MAX)["cleanup.policy"].value for each in described]
