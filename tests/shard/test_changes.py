"""The sealer's question is answered with changes, in slices."""

from pathlib import Path

import pytest

from smq.shard import changes as module
from smq.shard.changes import Changed, Changes
from smq.wire.internal.messages import PartitionState
from tests.shard.shard_bench import MONOTONIC_MS, NOW_MS, Appender, batch, catalog, new_shard, topic

COUNT = 30


class Bench:
    """A shard that leads partitions 1 to 30, two logs, and what is told of them."""

    def __init__(self, directory: Path) -> None:
        self.topics = [
            topic("many", range(1, COUNT), logs=tuple(i % 2 for i in range(COUNT - 1))),
            topic("one", range(COUNT, COUNT + 1)),
        ]
        self.shard = new_shard(directory, *self.topics, logs=2)
        self.appender = Appender(self.shard)
        self.changes = Changes(self.shard.logs.values())

    def after(self, since: int) -> Changed:
        told = self.changes.after(since)
        self.changes.invariants()
        return told

    def append(self, index: int) -> None:
        self.appender.append("many", index, batch(b"v"))

    def numbers(self, told: Changed) -> list[int]:
        return sorted(row.number for row in told.partitions)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_first_answer_has_all_and_the_next_what_has_changed(bench: Bench) -> None:
    told = bench.after(0)
    assert (told.since, told.more, told.gone) == (0, False, [])
    assert bench.numbers(told) == [*range(1, COUNT + 1)]
    assert {row.number: row.log for row in told.partitions}[2] == 1  # Its log.
    again = bench.after(told.version)
    assert again == Changed(told.version, told.version, more=False, gone=[], partitions=[])
    bench.append(3)
    bench.append(8)
    bench.append(3)
    grown = bench.after(again.version)
    assert bench.numbers(grown) == [4, 9]
    [row] = [row for row in grown.partitions if row.number == 4]
    assert row == PartitionState(4, 1, 0, 0, 2, 2 * len(batch(b"v")), MONOTONIC_MS, 0, 2)
    assert bench.after(again.version) == grown  # The answer was lost.
    bench.shard.logs[1].sealing.advance(4, 2, NOW_MS)
    bench.shard.logs[0].sealing.set_log_start(9, 1)
    assert bench.numbers(bench.after(grown.version)) == [4, 9]


def test_no_answer_is_longer_than_it_may_be(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_MAX", 7)
    told, numbers = bench.after(0), []
    for _ in range(5):
        assert len(told.partitions) <= 7
        numbers += bench.numbers(told)
        if not told.more:
            break
        bench.append(28)
        told = bench.after(told.version)
    assert sorted(numbers) == [*range(1, COUNT + 1)]
    [row] = bench.after(told.version).partitions  # What has changed meanwhile.
    assert (row.number, row.stable_end) == (29, 4)


@pytest.mark.parametrize("since", [-1, 10**9])
def test_an_unknown_version_is_answered_with_all_partitions(bench: Bench, since: int) -> None:
    bench.after(0)
    told = bench.after(since)
    assert (told.since, len(told.partitions)) == (0, COUNT)


def test_deleted_partitions_are_listed_even_if_their_rows_are_reused(
    bench: Bench,
) -> None:
    version = bench.after(0).version
    later = topic("new", range(100, 103))
    bench.shard.take_catalog(catalog(bench.topics[1], later), 2)
    told = bench.after(version)
    assert sorted(told.gone) == [*range(1, COUNT)]
    assert bench.numbers(told) == [100, 101, 102]
    assert bench.numbers(bench.after(0)) == [COUNT, 100, 101, 102]
    assert bench.after(told.version).gone == []


def test_a_sealer_that_missed_too_many_deletions_gets_all_partitions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GONE_MAX", 10)
    version = bench.after(0).version
    bench.shard.take_catalog(catalog(bench.topics[1]), 2)
    told = bench.after(version)
    assert told.since == 0
    assert bench.numbers(told) == [COUNT]
    assert bench.after(told.version).partitions == []


def test_a_question_looks_at_some_rows_and_there_is_more_until_it_has_looked_at_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 13, its kind: each question looked at all rows. With 100,000 partitions that took
    10 to 20 ms of the shard's loop, twice a second."""
    monkeypatch.setattr(module, "LOOKED_AT_MAX", 7)
    told = bench.after(0)
    while told.more:
        told = bench.after(told.version)
    for index in (0, 11, 28):
        bench.append(index)
    answers = [bench.after(told.version)]
    while answers[-1].more:
        answers.append(bench.after(answers[-1].version))
    assert len(answers) == -(-COUNT // 7)
    assert sorted(number for each in answers for number in bench.numbers(each)) == [1, 12, 29]


def test_a_full_answer_in_slices_examines_the_rows_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 13, its kind: a sealer that had started anew was told all in a hundred answers,
    and each of them looked at all rows again."""
    monkeypatch.setattr(module, "ROWS_MAX", 7)
    bench.after(0)
    looks, look = [0], bench.changes._look

    def counted() -> bool:
        looks[0] += 1
        return look()

    monkeypatch.setattr(bench.changes, "_look", counted)
    told, numbers = bench.after(0), []
    while True:
        numbers += bench.numbers(told)
        if not told.more:
            break
        told = bench.after(told.version)
    assert sorted(numbers) == [*range(1, COUNT + 1)]
    assert looks[0] <= 1
