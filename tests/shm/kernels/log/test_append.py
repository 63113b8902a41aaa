"""Where frames go, and that nothing is overwritten which is still needed."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base import words
from shm.kernels.log.append import account, append_rows, make_room, pad_to, place_of
from shm.kernels.log.plan import new_plan, row_at
from shm.kernels.twin.log import PlainFrame, Tail, read_frame
from shm.producer_table import new_producers
from shm.segment import LogMemory
from tests.oracle.batches import batch
from tests.shm.kernels.rig import LOG, NOW_MS, TOPIC, Rig, request_of

RING, SEGMENT = 2048, 1024


def log_of(ring_bytes: int = RING, segment_bytes: int = SEGMENT) -> LogMemory:
    return LogMemory.in_process(LOG, ring_bytes, segment_bytes, 2)


def paddings(log: LogMemory, start: int, end: int) -> list[tuple[int, int]]:
    """The padding frames that fill the log between two positions."""
    found = []
    while start < end:
        frame = read_frame(log.ring[start % len(log.ring) :].tobytes(), start)
        assert frame is not None
        assert frame.kind == words.FRAME_KIND_PADDING
        found.append((start, start + frame.frame_bytes))
        start += frame.frame_bytes
    return found


@settings(deadline=None)
@given(
    st.sampled_from([(2048, 1024), (1024, 4096), (3072, 1024), (2048, 640)]),
    st.lists(st.tuples(st.integers(2, 8), st.integers(0, 2)), max_size=40),
)
def test_frames_go_where_the_twin_puts_them(
    sizes: tuple[int, int], steps: list[tuple[int, int]]
) -> None:
    log, tail = log_of(*sizes), Tail(*sizes)
    for lines, drains in steps:
        before, size = log.words[words.WORD_TAIL], 64 * lines
        padded, place = tail.place(size)
        assert make_room(log.memory, size) == (place is not None)
        assert paddings(log, before, log.words[words.WORD_TAIL]) == padded
        assert log.words[words.WORD_SEGMENT_END] == tail.segment_end
        if place is not None:
            assert log.words[words.WORD_TAIL] == place
            log.words[words.WORD_TAIL] += size
        if place is None or drains == 0:
            tail.written = log.words[words.WORD_WRITTEN] = log.words[words.WORD_TAIL]


def test_an_index_entry_that_is_still_needed_is_not_overwritten() -> None:
    log = log_of()
    log.words[words.WORD_INDEX_TAIL] = 100 + log.layout.index_capacity
    log.words[words.WORD_INDEX_KEEP] = 100
    assert not make_room(log.memory, 128)
    log.words[words.WORD_INDEX_KEEP] = 101
    assert make_room(log.memory, 128)


def test_padding_is_claimed_then_published_and_says_what_was_synced() -> None:
    log = log_of()
    log.words[words.WORD_SYNCED], log.words[words.WORD_GENERATION] = 64, 9
    log.words[words.WORD_TAIL] = 128
    pad_to(log.memory, 1024)
    assert log.words[words.WORD_TAIL] == log.words[words.WORD_CLAIMED] == 1024
    frame = read_frame(log.ring[128:].tobytes(), 128)
    assert frame == PlainFrame(
        128, 64, 9, 0, words.FRAME_KIND_PADDING, 0, frame.content if frame else b""
    )


def test_positions_lie_in_the_ring_by_their_remainder() -> None:
    log = log_of()
    assert place_of(log.memory, 5 * RING + 64) == log.layout.ring_at + 64


@pytest.mark.parametrize(("first", "second", "largest"), [(5, 3, 5), (3, 5, 5), (-9, -9, -1)])
def test_a_partitions_end_and_sums_move_with_each_batch(
    first: int, second: int, largest: int
) -> None:
    log = log_of()
    row = log.partitions[1]
    row[words.P_MAX_TIMESTAMP] = -1
    account(log.memory, 1, 3, 100, first, 70)
    account(log.memory, 1, 2, 50, second, 90)
    columns = (
        words.P_LOG_END,
        words.P_UNSEALED_BYTES,
        words.P_MAX_TIMESTAMP,
        words.P_UNSEALED_SINCE_MS,
    )
    assert row[list(columns)].tolist() == [5, 150, largest, 70]


def test_rows_of_other_logs_are_passed_over() -> None:
    log, plan = log_of(), new_plan(1, 1, 2)
    links, producers = np.zeros((5, 64), np.int64), new_producers(16, bytes(16))
    plan[words.HEAD_ROW_COUNT] = 1
    plan[row_at(plan, 0) + words.ROW_CODE] = (LOG + 1) << 32
    assert append_rows(log.memory, links, producers, np.zeros(8, np.uint8), plan) == 0
    assert plan[row_at(plan, 0) + words.ROW_STATE] == 0
    assert log.words[words.WORD_TAIL] == 0


def test_a_frame_says_how_far_the_log_was_synced_and_whose_it_is() -> None:
    rig = Rig()
    rig.log.words[words.WORD_SYNCED] = 0
    rig.receive(request_of([(TOPIC.name, [(1, batch())])]))
    rig.log.words[words.WORD_SYNCED] = rig.log.words[words.WORD_TAIL]
    rig.receive(request_of([(TOPIC.name, [(0, batch())])]), NOW_MS + 1)
    first, second = rig.frames()
    assert (first.partition, first.synced, first.level) == (11, 0, 2)
    assert (second.partition, second.synced, second.level) == (10, second.position, 1)
