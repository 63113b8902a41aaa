"""The kernel takes requests of limited clients by their bitmaps, and leaves all others as they
came."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    COUNTER_FETCH_REQUESTS,
    COUNTER_PRODUCE_REQUESTS,
    HEAD_PARSED,
    HEAD_REQUEST_COUNT,
    HEAD_START,
    STOP_FETCH_LEFT,
    STOP_OTHER_API,
    STOP_RIGHTS,
    WORD_TAIL,
)
from shm.kernels.log.bitmaps import NOBODYS, READS, WRITES, bitmap_at
from shm.kernels.turn.limited import BARRED, L_ROW, L_USED_NS, LIMIT_WORDS
from shm.kernels.turn.parked import PARKED_COUNT
from shm.kernels.turn.words import (
    ACCESS,
    ACCESS_VERSION,
    BITMAP_WORDS,
    BITMAPS,
    HAS_IDLED,
    LEFT_FD,
    LEFT_STOP,
    LIMITED,
    LIMITS,
    MOVED,
    PARKED,
)
from tests.oracle.batches import batch
from tests.shm.kernels.rig import SLOTS, request_of
from tests.shm.kernels.turn_rig import ONE, SAFE, Turns, answered, fetch_of

SIZE, ROW = 2, 3
ONE_SLOT, SAFE_SLOT, THIRD_SLOT = SLOTS[10], SLOTS[11], SLOTS[12]


class LimitedTurns(Turns):
    """Turns whose first client is limited."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clients=2)
        self.limits = np.zeros(LIMIT_WORDS << 16, np.int64)
        self.bitmaps, self.access = np.zeros(8 * SIZE, np.int64), np.zeros(1, np.int64)
        given = ((LIMITS, self.limits), (BITMAPS, self.bitmaps), (ACCESS, self.access))
        for word, array in given:
            self.turn[word : word + 2] = array.ctypes.data, len(array)
        self.turn[BITMAP_WORDS], self.turn[ACCESS_VERSION] = SIZE, 0
        self.client, ours = self.pairs[0]
        self.fd = ours.fileno()
        self.clients[self.fd], self.limits[LIMIT_WORDS * self.fd + L_ROW] = LIMITED, ROW

    def allow(self, operation: int, *slots: int) -> None:
        for slot in slots:
            self.bitmaps[bitmap_at(SIZE, ROW, operation) + slot // 64] |= 1 << slot % 64

    def forbid_all(self) -> None:
        self.bitmaps[:] = 0

    def assert_left(self, sent: bytes, parsed: int) -> None:
        """Everything that was sent is left as it came, and nothing of it was done."""
        turn, words = self.turn, self.rig.log.words
        assert (turn[LEFT_FD], turn[LEFT_STOP]) == (self.fd, STOP_OTHER_API)
        assert (self.plan[HEAD_PARSED], self.plan[HEAD_START]) == (parsed, 0)
        assert self.plan[HEAD_REQUEST_COUNT] == 0
        assert bytes(self.data[: len(sent)]) == sent
        assert words[WORD_TAIL] == words[COUNTER_PRODUCE_REQUESTS] == answered(self.client) == 0
        assert words[COUNTER_FETCH_REQUESTS] == 0


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[LimitedTurns]:
    turns = LimitedTurns(tmp_path / "wal")
    yield turns
    turns.close()


def test_a_batch_for_a_partition_with_a_bit_is_appended(turns: LimitedTurns) -> None:
    turns.allow(WRITES, ONE_SLOT)
    turns.client.send(ONE * 2)
    turn = turns.take()
    assert (turn[HAS_IDLED], turn[LEFT_FD], answered(turns.client)) == (1, -1, 2)
    assert turns.high_watermark(10) == 2
    assert turns.clients[turns.fd] == LIMITED
    assert turns.limits[LIMIT_WORDS * turns.fd + L_USED_NS] > 0


UNKNOWN = request_of([("unknown", [(0, batch(b"v"))])])
MIXED = request_of([("a", [(0, batch(b"v")), (1, batch(b"v"))])])


@pytest.mark.parametrize("sent", [ONE, MIXED, UNKNOWN, ONE + UNKNOWN], ids=str)
def test_requests_with_a_partition_without_a_bit_are_left_untouched(
    turns: LimitedTurns, sent: bytes
) -> None:
    turns.allow(WRITES, SAFE_SLOT)
    turns.allow(READS, ONE_SLOT)
    if sent != ONE:
        turns.allow(WRITES, ONE_SLOT)
        turns.bitmaps[bitmap_at(SIZE, ROW, WRITES)] &= ~(1 << SAFE_SLOT)
    turns.client.send(sent)
    turns.take()
    turns.assert_left(sent, STOP_RIGHTS)


def test_a_request_that_comes_after_rights_have_changed_is_left_though_the_bits_are_old(
    turns: LimitedTurns,
) -> None:
    turns.allow(WRITES, ONE_SLOT)
    turns.access[0] += 1
    turns.client.send(ONE)
    turns.take()
    turns.assert_left(ONE, STOP_RIGHTS)


def test_a_client_whose_bitmaps_are_gone_is_left(turns: LimitedTurns) -> None:
    turns.allow(WRITES, ONE_SLOT)
    turns.limits[LIMIT_WORDS * turns.fd + L_ROW] = NOBODYS
    turns.client.send(ONE)
    turns.take()
    turns.assert_left(ONE, STOP_RIGHTS)


def test_other_clients_are_served_without_bitmaps(turns: LimitedTurns) -> None:
    turns.pairs[1][0].send(ONE)
    turn = turns.take()
    assert (turn[HAS_IDLED], answered(turns.pairs[1][0])) == (1, 1)


def test_a_fetch_of_partitions_with_bits_is_answered(turns: LimitedTurns) -> None:
    turns.allow(READS, ONE_SLOT, THIRD_SLOT)
    turns.pairs[1][0].send(ONE)
    turns.take()
    turns.client.send(fetch_of(0))
    turn = turns.take()
    assert (turn[HAS_IDLED], turn[LEFT_FD], answered(turns.client)) == (1, -1, 1)
    assert turns.clients[turns.fd] == LIMITED


@pytest.mark.parametrize("slots", [(), (ONE_SLOT,), (THIRD_SLOT, SAFE_SLOT)])
def test_a_fetch_of_another_partition_is_left_and_not_counted(
    turns: LimitedTurns, slots: tuple[int, ...]
) -> None:
    turns.allow(READS, *slots)
    turns.allow(WRITES, ONE_SLOT, THIRD_SLOT)
    turns.client.send(fetch_of(0, min_bytes=0))
    turns.take()
    turns.assert_left(fetch_of(0, min_bytes=0), STOP_FETCH_LEFT)


def test_a_fetch_that_waits_is_answered_when_records_come(turns: LimitedTurns) -> None:
    turns.allow(READS, ONE_SLOT, THIRD_SLOT)
    turns.client.send(fetch_of(0))
    turns.take()
    assert (turns.clients[turns.fd], turns.parked[0][PARKED_COUNT]) == (PARKED, 1)
    assert turns.parked[1][0] == BARRED
    turns.pairs[1][0].send(ONE)
    turn = turns.take()
    assert (turn[HAS_IDLED], answered(turns.client), turns.clients[turns.fd]) == (1, 1, LIMITED)
    assert turns.parked[0][PARKED_COUNT] == 0


@pytest.mark.parametrize("is_told", [True, False])
def test_a_fetch_that_waits_gets_no_record_once_its_right_is_gone(
    turns: LimitedTurns, *, is_told: bool
) -> None:
    turns.allow(READS, ONE_SLOT, THIRD_SLOT)
    turns.client.send(fetch_of(0))
    turns.take()
    if is_told:
        turns.forbid_all()
    else:
        turns.access[0] += 1
    turns.pairs[1][0].send(ONE)
    turn = turns.take()
    assert (turn[MOVED], answered(turns.client), turns.clients[turns.fd]) == (1, 0, PARKED)
    assert turns.parked[1][0] == BARRED
    assert turns.rig.log.words[COUNTER_FETCH_REQUESTS] == 0


def test_a_fetch_that_has_too_little_waits_on(turns: LimitedTurns) -> None:
    turns.allow(READS, ONE_SLOT, THIRD_SLOT)
    turns.client.send(fetch_of(0, min_bytes=1000))
    turns.take()
    turns.pairs[1][0].send(ONE)
    turn = turns.take()
    assert (turn[HAS_IDLED], turn[MOVED], answered(turns.client)) == (1, 0, 0)
    assert (turns.clients[turns.fd], turns.parked[1][0]) == (PARKED, BARRED)


def test_a_safe_batch_needs_its_bit_too(turns: LimitedTurns) -> None:
    turns.client.send(SAFE)
    turns.take()
    turns.assert_left(SAFE, STOP_RIGHTS)
