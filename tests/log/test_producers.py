"""The producers of a log: how many, how long, and how little is done for them in one step."""

import numpy as np
import pytest

from shm.kernels.log.producers import (
    PRODUCER_COLUMNS,
    R_LAST_MS,
    R_PARTITION,
    R_PRODUCER_ID,
    forget_partitions,
    producer_row,
    restore_producers,
)
from smq.log import producers as module
from smq.log.producers import ROWS_AT_ONCE, Producers

KEY = b"the key of tests"
EVERYWHERE = np.arange(1000), np.full(1000, 10)


def rows_of(numbers: list[int], producer_ids: range, *, last_ms: int = 7) -> np.ndarray:
    """As a checkpoint has them: each producer has appended one batch, at offset 5."""
    rows = np.zeros((len(numbers) * len(producer_ids), PRODUCER_COLUMNS), np.int64)
    rows[:, R_PARTITION] = np.repeat(numbers, len(producer_ids))
    rows[:, R_PRODUCER_ID] = np.tile(producer_ids, len(numbers))
    rows[:, 3], rows[:, R_LAST_MS], rows[:, 6 + 2] = 1, last_ms, 5
    return rows


def producers_of(
    numbers: list[int], producer_ids: range, capacity: int = 1 << 15, last_ms: int = 7
) -> Producers:
    producers = Producers(KEY, capacity)
    producers.restore(rows_of(numbers, producer_ids, last_ms=last_ms))
    producers.invariants()
    return producers


def partitions_of(producers: Producers) -> set[int]:
    """The numbers that are in the table."""
    return set(producers.table[1 : producers.end, R_PARTITION].tolist()) - {0}


def test_those_of_many_partitions_that_go_at_once_are_forgotten_in_one_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producers, looked_at = producers_of([*range(200)], range(100)), []
    forget = forget_partitions

    def counting(table: np.ndarray, first: int, end: int, gone: np.ndarray) -> None:
        looked_at.append(end - first)
        forget(table, first, end, gone)

    monkeypatch.setattr(module, "forget_partitions", counting)
    producers.drop_partitions(set(range(100)))
    assert len(looked_at) == 1
    while producers._gone:
        producers.sweep()
        producers.invariants()
    assert sum(looked_at) == 20_000
    assert max(looked_at) == ROWS_AT_ONCE
    assert partitions_of(producers) == {n + 1 for n in range(100, 200)}
    producers.sweep()
    assert sum(looked_at) == 20_000


def test_partitions_that_go_during_a_walk_are_looked_for_everywhere() -> None:
    producers = producers_of([*range(10)], range(1000))
    producers.drop_partitions({9})
    producers.drop_partitions({0})
    for _ in range(3):
        producers.sweep()
    assert partitions_of(producers) == set(range(2, 10))
    assert len(producers) == 8000


def test_producers_of_a_deleted_partition_are_not_found_before_the_sweep() -> None:
    """Until it is swept: numbers are not used again."""
    producers = producers_of([1], range(2 * ROWS_AT_ONCE))
    producers.drop_partitions({1})
    assert producer_row(producers.table, 2, ROWS_AT_ONCE + 1) == 0


def test_those_of_some_partitions_are_found_piece_by_piece() -> None:
    """One question to a full table held a shard's loop for 30 ms."""
    producers = producers_of([1, 2, 3], range(ROWS_AT_ONCE))
    found, pieces = dict[int, list[int]](), 0
    for piece in producers.rows_of([3, 1]):
        pieces += 1
        assert sum(map(len, piece.values())) <= ROWS_AT_ONCE
        for number, rows in piece.items():
            found.setdefault(number, []).extend(rows.tolist())
    assert pieces >= 3
    assert found.keys() == {1, 3}
    for number, those in found.items():
        assert (producers.table[those, R_PARTITION] == number + 1).all()
        assert those == sorted(set(those))
        assert len(those) == ROWS_AT_ONCE


def test_the_silent_go_in_steps() -> None:
    producers = producers_of([1], range(2 * ROWS_AT_ONCE + 10))
    restore_producers(producers.table, rows_of([1], range(10), last_ms=100))
    assert [producers.expire(50) for _ in range(4)] == [ROWS_AT_ONCE, ROWS_AT_ONCE, 0, 0]
    assert len(producers) == 10
    producers.invariants()


def test_of_more_than_there_may_be_a_start_takes_over_the_newest() -> None:
    producers, rows = Producers(KEY, 1024), rows_of([1], range(2000))
    rows[:, R_LAST_MS] = np.arange(2000)
    producers.restore(np.random.default_rng(1).permutation(rows))
    assert len(producers) == 1024
    kept = producers.table[1:1025, R_PRODUCER_ID]
    assert sorted(kept.tolist()) == list(range(2000 - 1024, 2000))


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 10_000])
def test_a_copy_is_made_in_steps(count: int) -> None:
    producers = producers_of([3], range(count))
    copy, pieces = producers.copy(), []
    while True:
        pieces.append(copy.take())
        if copy.is_whole:
            break
    assert len(pieces) == max(1, -(-count // ROWS_AT_ONCE))
    assert max(len(piece) for piece in pieces) <= ROWS_AT_ONCE
    for piece in pieces:
        copy.file(piece, *EVERYWHERE)
    assert (copy.filed == rows_of([3], range(count))).all()


def test_a_copy_knows_nothing_that_came_after_its_beginning() -> None:
    producers = producers_of([3], range(2 * ROWS_AT_ONCE))
    copy = producers.copy()
    first, later = copy.take(), rows_of([3], range(9000))
    later[:, 6 + 2] = 10  # Where the partition ended when the copy was begun.
    restore_producers(producers.table, later)
    second = copy.take()
    copy.file(first, *EVERYWHERE)
    copy.file(second, *EVERYWHERE)
    assert (copy.filed == rows_of([3], range(ROWS_AT_ONCE))).all()


def test_the_rows_of_partitions_are_found_in_one_walk() -> None:
    producers = producers_of([4, 2, 9], range(50))
    [found] = producers.rows_of([9, 3, 4])
    assert set(found) == {4, 9}
    assert list(Producers(KEY).rows_of([1])) == []
    for number in (4, 9):
        rows = producers.table[found[number]]
        assert (rows[:, R_PARTITION] == number + 1).all()
        assert rows[:, R_PRODUCER_ID].tolist() == list(range(50))
