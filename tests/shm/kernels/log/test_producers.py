"""The rules of idempotent producers, against the twin."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.log.producers import (
    ACCEPT,
    DUPLICATE,
    H_CAPACITY,
    H_COUNT,
    H_FREE,
    H_KEY,
    H_OLDEST,
    H_TOP,
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    PRODUCER_BATCHES,
    PRODUCER_COLUMNS,
    R_BATCH_COUNT,
    R_EPOCH,
    R_LAST_MS,
    R_NEWER,
    R_NEWEST,
    R_NEXT,
    R_PARTITION,
    R_PRODUCER_ID,
    R_STATE_END,
    check_sequence,
    clip_producers,
    expire_producers,
    fence_producer,
    file_producers,
    forget_partitions,
    producer_hash,
    producer_row,
    remember_batch,
    restore_producers,
)
from shm.kernels.twin.produce import Appended, BatchRefused, Producers, sip_hash
from shm.producer_table import new_producers
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


KEY = b"the key of tests"


class Table:
    """The table as a log keeps it."""

    def __init__(self, capacity: int = 64, *, interpreted: bool = False) -> None:
        self.rows = new_producers(capacity, KEY)
        self.known = (0, 0)
        check: Any = check_sequence
        self.check = check.py_func if interpreted else check

    def append(  # noqa: PLR0913
        self,
        number: int,
        producer_id: int,
        epoch: int,
        first: int,
        count: int,
        *,
        now_ms: int = 7,
        offset: int | None = None,
    ) -> int:
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
        row = producer_row(self.rows, number, producer_id)
        code, place = self.check(self.rows, row, epoch, (first, (first + count - 1) & LAST))
        self.known = tuple(self.rows[row, place + 2 : place + 4].tolist())
        if code == ACCEPT:
            base_offset = first + 100 if offset is None else offset
            appended = base_offset, first + 200, now_ms
            remember_batch(self.rows, row, number, data, 0, appended)
        return int(code)

    def known_by_age(self) -> list[tuple[int, int]]:
        """(partition, producer id), the oldest first; and that the table is in order."""
        rows, found = self.rows, []
        row = int(rows[0, H_OLDEST])
        while row:
            number, producer_id = int(rows[row, R_PARTITION]) - 1, int(rows[row, R_PRODUCER_ID])
            assert producer_row(rows, number, producer_id) == row
            found.append((number, producer_id))
            row = int(rows[row, R_NEWER])
        free, row = 0, int(rows[0, H_FREE])
        while row:
            free, row = free + 1, int(rows[row, R_NEXT])
        assert len(found) == rows[0, H_COUNT] == rows[0, H_TOP] - free <= rows[0, H_CAPACITY]
        return found


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
        except BatchRefused as why:
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


# --- Rows that come and go ------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), st.binary(min_size=16, max_size=16))
def test_the_hash_is_the_twins(number: int, producer_id: int, key: bytes) -> None:
    table = new_producers(16, key)
    assert table[0, H_KEY : H_KEY + 2].tobytes() == key
    words = number.to_bytes(8, "little") + producer_id.to_bytes(8, "little")
    assert int(producer_hash(table, number, producer_id)) == sip_hash(key, words)


def test_the_hash_is_siphash_1_3() -> None:
    """The reference's first vectors for this key: csiphash's test_siphash13, 16 bytes long."""
    key = bytes(range(16))
    assert sip_hash(key, b"") == 0xABAC0158050FC4DC
    assert sip_hash(key, bytes(range(16))) == int(
        producer_hash(new_producers(16, key), 0x0706050403020100, 0x0F0E0D0C0B0A0908)
    )


def test_ids_chosen_to_meet_under_one_key_do_not_under_another() -> None:
    """Whoever could invert the hash made every lookup a walk over all his rows."""
    mask, known, other = 1023, new_producers(512, KEY), new_producers(512, b"one nobody knows")
    hashes = {i: int(producer_hash(known, 1, i)) & mask for i in range(200_000)}
    chosen = [i for i, hashed in hashes.items() if hashed == 0][:150]
    assert len(chosen) == 150
    buckets = [int(producer_hash(other, 1, i)) & mask for i in chosen]
    assert max(buckets.count(bucket) for bucket in set(buckets)) < 10


def test_a_full_table_forgets_who_appended_longest_ago() -> None:
    table = Table(capacity=16)
    for producer_id in range(16):
        assert table.append(1, producer_id, 0, 0, 1) == ACCEPT
    assert table.append(1, 0, 0, 1, 1) == ACCEPT
    assert table.append(1, 0, 0, 1, 1) == DUPLICATE
    for producer_id in (16, 17):
        assert table.append(1, producer_id, 0, 5, 1) == ACCEPT
    assert table.known_by_age() == [(1, i) for i in (*range(3, 16), 0, 16, 17)]
    assert table.append(1, 0, 0, 1, 1) == DUPLICATE
    assert table.append(1, 1, 0, 0, 1) == ACCEPT  # Forgotten.


def test_the_silent_expire_the_oldest_first_and_not_all_at_once() -> None:
    table = Table()
    for producer_id in range(10):
        table.append(1, producer_id, 0, 0, 1, now_ms=100 + producer_id)
    table.append(1, 3, 0, 1, 1, now_ms=200)
    assert expire_producers(table.rows, 106, 4) == 4
    assert table.known_by_age() == [(1, i) for i in (5, 6, 7, 8, 9, 3)]
    assert expire_producers(table.rows, 106, 4) == 1
    assert expire_producers(table.rows, 106, 4) == 0
    assert expire_producers(table.rows, 1000, 100) == 5
    assert table.known_by_age() == []
    assert expire_producers(table.rows, 1000, 100) == 0


def test_partitions_that_are_gone_are_forgotten_in_one_walk() -> None:
    table = Table()
    for number in range(5):
        for producer_id in range(4):
            table.append(number, producer_id, 0, 0, 1)
    gone = np.array([1, 3], np.int64)
    forget_partitions(table.rows, 1, 11, gone)
    assert table.known_by_age() == [
        (n, i) for n in range(5) for i in range(4) if n != 1 and not (n == 3 and 4 * n + i < 10)
    ]
    forget_partitions(table.rows, 11, 21, gone)
    assert table.known_by_age() == [(n, i) for n in (0, 2, 4) for i in range(4)]


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 3), st.integers(0, 9)),
            st.tuples(st.just("expire"), st.integers(0, 30), st.integers(0, 3)),
            st.tuples(st.just("gone"), st.integers(0, 3), st.just(0)),
        ),
        max_size=80,
    )
)
def test_the_table_stays_a_list_by_age_under_any_events(
    events: list[tuple[str, int, int]],
) -> None:
    table = Table(capacity=16)
    known: dict[tuple[int, int], int] = {}  # When each has appended, the oldest first.
    for now_ms, (kind, one, other) in enumerate(events):
        if kind == "append":
            row = table.rows[producer_row(table.rows, one, other)]
            epoch = int(row[R_EPOCH]) + 1 if (one, other) in known else 0
            assert table.append(one, other, epoch, 0, 1, now_ms=now_ms) == ACCEPT
            known.pop((one, other), None)
            if len(known) == 16:
                del known[next(iter(known))]
            known[one, other] = now_ms
        elif kind == "expire":
            old = [key for key, last_ms in known.items() if last_ms < one][:other]
            assert expire_producers(table.rows, one, other) == len(old)
            known = {key: last_ms for key, last_ms in known.items() if key not in old}
        else:
            forget_partitions(table.rows, 1, 17, np.array([one], np.int64))
            known = {key: last_ms for key, last_ms in known.items() if key[0] != one}
        assert table.known_by_age() == list(known)


# --- Checkpoints ----------------------------------------------------------------------------------


def filed(table: Table, numbers: list[int], ends: list[int]) -> np.ndarray:
    """What a checkpoint keeps."""
    rows = table.rows[1 : int(table.rows[0, H_TOP]) + 1].copy()
    out = np.full((len(rows), PRODUCER_COLUMNS), -1, np.int64)
    count = file_producers(rows, np.array(numbers, np.int64), np.array(ends, np.int64), out)
    assert (out[count:] == -1).all()
    return out[:count]


def test_filed_producers_are_restored_under_another_secret() -> None:
    table, other = Table(), Table()
    for sequence in range(7):
        for number in (0, 2**31):
            table.append(number, 5, 3, sequence, 1, offset=sequence, now_ms=9 - number % 7)
    rows = filed(table, [0, 2**31], [7, 7])
    assert not rows[:, R_STATE_END:].any()
    other.rows = new_producers(16, b"one nobody knows")
    other.append(0, 5, 4, 0, 1)
    restore_producers(other.rows, rows)
    assert other.known_by_age() == [(0, 5), (2**31, 5)]
    for number in (0, 2**31):
        mine, theirs = (t.rows[producer_row(t.rows, number, 5)] for t in (table, other))
        assert (mine[:R_STATE_END] == theirs[:R_STATE_END]).all()


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("end", range(10))
def test_batches_behind_the_end_are_forgotten_and_accepted_again(count: int, end: int) -> None:
    """Also by what is filed, while the table goes on."""
    table, other = Table(), Table()
    for sequence in range(count):
        table.append(4, 5, 3, sequence, 1, offset=sequence)
    rows = filed(table, [1, 4], [100, end])
    restore_producers(other.rows, rows)
    clip_producers(table.rows, np.array([1, 4], np.int64), np.array([100, end], np.int64))
    first = max(0, count - 5)
    for each in (table, other):
        kept = list(range(first, min(count, end)))
        assert each.known_by_age() == ([(4, 5)] if kept else [])
        if not kept:
            continue
        assert each.rows[producer_row(each.rows, 4, 5), R_BATCH_COUNT] == len(kept)
        for sequence in kept:
            assert each.append(4, 5, 3, sequence, 1) == DUPLICATE
            assert each.known[0] == sequence
        assert each.append(4, 5, 3, kept[-1] + 2, 1) == OUT_OF_ORDER_SEQUENCE_NUMBER
        for sequence in range(kept[-1] + 1, kept[-1] + 6):
            assert each.append(4, 5, 3, sequence, 1, offset=sequence) == ACCEPT
        assert each.append(4, 5, 3, kept[-1], 1) == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert each.append(4, 5, 2, 0, 1) == INVALID_PRODUCER_EPOCH


def test_a_producer_of_which_only_its_markers_epoch_is_left_has_no_newest_batch() -> None:
    """-1 was taken by no start: the checkpoint counted as damaged, and so did the one before."""
    table = Table()
    table.append(4, 5, 3, 0, 1, offset=10)
    fence_producer(table.rows, 4, 5, 3, 0, 7)
    [row] = filed(table, [4], [10])
    clip_producers(table.rows, np.array([4], np.int64), np.array([10], np.int64))
    kept = table.rows[producer_row(table.rows, 4, 5)]
    for each in (row, kept):
        assert each[R_BATCH_COUNT] == 0
        assert each[R_NEWEST] == PRODUCER_BATCHES - 1
    assert table.append(4, 5, 3, 1, 1) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.append(4, 5, 3, 0, 1, offset=10) == ACCEPT
    assert table.append(4, 5, 3, 0, 1) == DUPLICATE


def test_producers_of_unknown_partitions_are_neither_filed_nor_kept() -> None:
    table = Table()
    table.append(4, 5, 3, 0, 1)
    table.append(6, 5, 3, 0, 1)
    assert filed(table, [6], [1000])[:, R_PARTITION].tolist() == [6]
    clip_producers(table.rows, np.array([6], np.int64), np.array([1000], np.int64))
    assert table.known_by_age() == [(6, 5)]
    assert table.rows[producer_row(table.rows, 6, 5), R_LAST_MS] == 7
