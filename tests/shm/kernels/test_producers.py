"""The rules of idempotent producers, against the twin."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.producers import (
    ACCEPT,
    DUPLICATE,
    PRODUCER_COLUMNS,
    R_LAST_MS,
    check_sequence,
    producer_row,
    producers_are_full,
    rehash_producers,
    remember_batch,
)
from shm.kernels.reference_produce import Appended, Producers, Refused
from tests.oracle.batches import batch, changed

VOICES = [pytest.param(False, id="compiled"), pytest.param(True, id="interpreted")]
LAST = 2**31 - 1

steps = st.tuples(
    st.integers(0, 2),  # partition's slot
    st.sampled_from([0, 1, 2**62]),  # producer id
    st.integers(0, 2),  # epoch
    st.sampled_from([0, 1, 2, 3, 5, LAST - 1, LAST]),  # first sequence
    st.integers(1, 3),  # records
)


class Table:
    """The table as a log keeps it: grown when it is full."""

    def __init__(self, *, interpreted: bool = False) -> None:
        self.rows = np.zeros((4, PRODUCER_COLUMNS), np.int64)
        check: Any = check_sequence
        self.check = check.py_func if interpreted else check

    def append(self, slot: int, producer_id: int, epoch: int, first: int, count: int) -> int:
        """What is said of a batch, which is noted if it is accepted: a code."""
        data = np.frombuffer(
            changed(
                batch(),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=first,
                last_offset_delta=count - 1,
            ),
            np.uint8,
        ).copy()
        if producers_are_full(self.rows):
            larger = np.zeros((2 * len(self.rows), PRODUCER_COLUMNS), np.int64)
            rehash_producers(self.rows, larger, 0, np.ones(8, np.bool_))
            self.rows = larger
        row = producer_row(self.rows, slot, producer_id)
        code, place = self.check(self.rows, row, epoch, (first, (first + count - 1) & LAST))
        self.known = tuple(self.rows[row, place + 2 : place + 4].tolist())
        if code == ACCEPT:
            remember_batch(self.rows, row, slot, data, 0, (first + 100, first + 200, 7))
        return int(code)


@pytest.mark.parametrize("interpreted", VOICES)
@settings(deadline=None)
@given(st.lists(steps, max_size=40))
def test_any_batches_are_judged_as_by_the_twin(
    interpreted: bool, batches: list[tuple[int, int, int, int, int]]
) -> None:
    table, twins = Table(interpreted=interpreted), [Producers() for _ in range(3)]
    for slot, producer_id, epoch, first, count in batches:
        last, twin = (first + count - 1) % 2**31, twins[slot]
        code = table.append(slot, producer_id, epoch, first, count)
        try:
            repeated = twin.check(producer_id, epoch, first, last)
        except Refused as why:
            assert code == why.error, "refused"  # noqa: PT017  (or accepted, below)
            continue
        assert code == (DUPLICATE if repeated else ACCEPT)
        if repeated:
            assert table.known == (repeated.base_offset, repeated.timestamp)
        else:
            twin.remember(producer_id, epoch, Appended(first, last, first + 100, first + 200))


@pytest.mark.parametrize(
    ("epoch", "first", "count", "code"),
    [
        pytest.param(1, 0, 1, DUPLICATE, id="the fifth last"),
        pytest.param(1, 4, 1, DUPLICATE, id="the last"),
        pytest.param(1, 5, 3, ACCEPT, id="the next"),
        pytest.param(1, 6, 1, 45, id="a gap"),
        pytest.param(1, 3, 2, 45, id="two that were two batches"),
        pytest.param(0, 5, 1, 47, id="an epoch before"),
        pytest.param(2, 0, 1, ACCEPT, id="a new epoch from 0"),
        pytest.param(9, 0, 1, ACCEPT, id="an epoch far ahead"),
        pytest.param(2, 5, 1, 45, id="a new epoch not from 0"),
    ],
)
def test_after_five_batches(epoch: int, first: int, count: int, code: int) -> None:
    table = Table()
    for sequence in range(5):
        assert table.append(0, 7, 1, sequence, 1) == ACCEPT
    assert table.append(0, 7, epoch, first, count) == code


def test_the_sixth_last_is_forgotten() -> None:
    table = Table()
    for sequence in range(6):
        assert table.append(0, 7, 1, sequence, 1) == ACCEPT
    assert table.append(0, 7, 1, 0, 1) == 45


def test_sequences_go_on_at_0_behind_the_largest() -> None:
    table = Table()
    assert table.append(0, 7, 0, LAST - 1, 1) == ACCEPT
    assert table.append(0, 7, 0, LAST, 3) == ACCEPT
    assert table.append(0, 7, 0, 2, 1) == ACCEPT
    assert table.append(0, 7, 0, LAST, 3) == DUPLICATE
    assert table.append(0, 7, 0, 5, 1) == 45


def test_behind_a_batch_that_ends_with_the_largest_sequence_comes_0() -> None:
    table = Table()
    assert table.append(0, 7, 0, LAST - 1, 2) == ACCEPT
    assert table.append(0, 7, 0, 1, 1) == 45
    assert table.append(0, 7, 0, 0, 1) == ACCEPT


def test_growing_keeps_the_living_and_drops_expired_ones_and_lost_slots() -> None:
    table = Table()
    for slot in range(3):
        for producer_id in range(20):
            table.append(slot, producer_id, 0, 5, 1)
    for producer_id in range(10):
        table.rows[producer_row(table.rows, 1, producer_id), R_LAST_MS] = 3
    kept = np.array([True, True, False, True])
    target = np.zeros((128, PRODUCER_COLUMNS), np.int64)
    rehash_producers(table.rows, target, 4, kept)
    assert target[0, 0] == 20 + 10 == int((target[1:, 0] != 0).sum())
    for producer_id in range(20):
        known = target[producer_row(target, 0, producer_id)]
        assert (known == table.rows[producer_row(table.rows, 0, producer_id)]).all()
    assert target[producer_row(target, 2, 3), 0] == 0


def test_a_table_is_full_when_half_of_it_is_taken() -> None:
    rows = np.zeros((8, PRODUCER_COLUMNS), np.int64)
    rows[0, 0] = 3
    assert not producers_are_full(rows)
    rows[0, 0] = 4
    assert producers_are_full(rows)
