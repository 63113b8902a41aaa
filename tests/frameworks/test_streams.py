"""Kafka Streams counts words through a kill: of the program, or of a process of the broker."""

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smq.testing.processes import Broker
from tests.clients.brokers import running
from tests.frameworks import topics
from tests.frameworks.jvm import program
from tests.frameworks.topics import Reader

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(300)]

LINES = 6000
WORDS_OF_A_LINE = 4
VOCABULARY = 40
PROGRESS_SECONDS_MAX = 90


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(tmp_path / "broker") as started:
        yield started


def lines() -> list[str]:
    chance = random.Random(17)
    words = [f"w{number}" for number in range(VOCABULARY)]
    return [" ".join(chance.choices(words, k=WORDS_OF_A_LINE)) for _ in range(LINES)]


class Run:
    """An application that counts the words of some lines, and a reader of what it says."""

    def __init__(self, broker: Broker, guarantee: str, directory: Path) -> None:
        self.broker, self._guarantee, self._directory = broker, guarantee, directory
        topics.create(broker.bootstrap, "lines", "counts")
        self._lines = lines()
        self.wanted = Counter(" ".join(self._lines).split())
        self.counts = Reader(broker.bootstrap, "counts")
        self.output = directory / "streams.log"
        self.state = directory / "state"

    def send(self, first: int = 0, end: int = LINES) -> None:
        topics.send(self.broker.bootstrap, "lines", self._lines[first:end])

    @contextmanager
    def counting(self) -> Iterator["Run"]:
        arguments = (self.broker.bootstrap, "words", self._guarantee, str(self.state))
        with program(self.output, "smq.WordCount", *arguments) as self.child:
            yield self

    def until(self, part: float) -> None:
        """Read until so much of the counting has been seen to be done."""
        wanted = part * self.wanted.total()
        self.counts.poll_until(
            lambda: sum(self.reached().values()) >= wanted,
            PROGRESS_SECONDS_MAX,
            f"{part} of the words are not counted: {self.output.read_text()[-3000:]}",
        )

    def reached(self) -> dict[str, int]:
        """The highest count of each word."""
        return {word: max(numbers) for word, numbers in self.numbers().items()}

    def numbers(self) -> dict[str, list[int]]:
        """All counts of each word, in order."""
        found: dict[str, list[int]] = {}
        for word, number in self.counts.found:
            found.setdefault(word, []).append(int(number))
        return found

    def restored(self) -> int:
        """How many records of changelogs the last start has read into stores."""
        said = re.findall(r"RESTORED (\d+)", self.output.read_text())
        return sum(map(int, said[-topics.PARTITIONS :]))


def assert_each_word_was_counted_exactly_once(run: Run) -> None:
    run.counts.poll_to_the_end()
    wanted = {word: list(range(1, number + 1)) for word, number in run.wanted.items()}
    assert run.numbers() == wanted


@pytest.mark.parametrize("state_is_lost", [False, True])
def test_a_killed_program_has_counted_exactly_once(
    broker: Broker, tmp_path: Path, state_is_lost: bool
) -> None:
    run = Run(broker, "exactly_once_v2", tmp_path)
    run.send()
    for part in (0.2, 0.5):
        with run.counting():
            run.until(part)
            run.child.kill()
        if state_is_lost:
            shutil.rmtree(run.state)
    with run.counting():
        run.until(1)
    assert_each_word_was_counted_exactly_once(run)
    assert 0 < run.restored() < run.wanted.total(), "it was killed when it had counted some"


@pytest.mark.parametrize("victim", ["shard-1", "coordinator"])
def test_a_killed_process_of_the_broker_changes_no_count(
    broker: Broker, tmp_path: Path, victim: str
) -> None:
    run = Run(broker, "exactly_once_v2", tmp_path)
    run.send(0, LINES // 2)
    with run.counting():
        for part in (0.1, 0.3):
            run.until(part)
            broker.kill(victim)
            broker.restart()
        run.send(LINES // 2)
        run.until(1)
    assert_each_word_was_counted_exactly_once(run)


def test_a_killed_program_has_counted_at_least_once(broker: Broker, tmp_path: Path) -> None:
    run = Run(broker, "at_least_once", tmp_path)
    run.send()
    with run.counting():
        run.until(0.4)
        run.child.kill()
    shutil.rmtree(run.state)
    with run.counting():
        run.until(1)
        run.counts.poll_until(
            lambda: all(run.reached()[word] >= n for word, n in run.wanted.items()),
            PROGRESS_SECONDS_MAX,
            "some words are not counted",
        )
    assert 0 < run.restored() < run.wanted.total(), "it was killed when it had counted some"
