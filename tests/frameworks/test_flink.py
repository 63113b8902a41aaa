"""A Flink job copies a topic exactly once through kills of the job and of a shard."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smq.testing.processes import Broker, Child
from tests.clients.brokers import running
from tests.clients.toolchain import java_classes
from tests.frameworks import topics
from tests.frameworks.topics import Reader

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(580)]

RECORDS = 500
COPY_SECONDS_MAX = 200
PROJECT = Path(__file__).parent / "flink"
# Flink's own scripts open these.
OPENED = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("lang", "util")]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "broker") as started:
        yield started


@contextmanager
def job(broker: Broker, directory: Path) -> Iterator[Child]:
    """It goes on from the last checkpoint; killed at the end."""
    checkpoints = directory / "checkpoints"
    known = [each.parent for each in checkpoints.glob("*/chk-*/_metadata")]
    last = sorted(known, key=lambda each: each.stat().st_mtime)[-1:]
    java = ["java", "-Xmx512m", *OPENED, "-cp", java_classes(PROJECT, "flink-1.jar"), "smq.Copy"]
    arguments = (broker.bootstrap, str(checkpoints), *map(str, last))
    child = Child.start([*java, *arguments], directory / "flink.log")
    try:
        yield child
    finally:
        child.kill()


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_a_killed_job_has_copied_exactly_once(broker: Broker, tmp_path: Path) -> None:
    topics.create(broker.bootstrap, "came", "went")
    reader = Reader(broker.bootstrap, "went")

    def until(count: int, child: Child) -> None:
        def copied() -> bool:
            assert child.running, child.tail()
            return len(reader.found) >= count

        reader.poll_until(copied, COPY_SECONDS_MAX, f"not {count} are copied: {child.tail()}")

    topics.send(broker.bootstrap, "came", numbers(0, RECORDS))
    with job(broker, tmp_path) as child:
        until(RECORDS, child)
        topics.send(broker.bootstrap, "came", numbers(RECORDS, 2 * RECORDS))
        until(RECORDS + 1, child)
        topics.send(broker.bootstrap, "came", numbers(2 * RECORDS, 3 * RECORDS))
    with job(broker, tmp_path) as child:
        until(3 * RECORDS, child)
        broker.kill("shard-1")
        broker.restart()
        topics.send(broker.bootstrap, "came", numbers(3 * RECORDS, 4 * RECORDS))
        until(4 * RECORDS, child)
    reader.poll_to_the_end()
    assert Counter(value for _, value in reader.found) == Counter(numbers(0, 4 * RECORDS))
