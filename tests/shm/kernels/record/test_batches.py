"""The rules for batches, one by one; test_produce walks them through a whole request."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import P_BATCH_BYTES_MAX, WORD_RING_BYTES, WORD_SEGMENT_BYTES
from shm.kernels.record.batches import (
    CORRUPT,
    NO_BATCH,
    check_content,
    check_shape,
    check_size,
    check_times,
    is_idempotent,
    sequences_of,
    whole_batch,
)
from shm.kernels.twin import produce as plain
from shm.segment import LogMemory
from tests.oracle.batches import batch, changed
from tests.shm.kernels.rig import LIMITS, NOW_MS, SLOTS, Rig
from tests.shm.kernels.strategies import batches

AROUND = b"\x55" * 7  # What is read beyond the end would be taken for something.


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(AROUND + data + AROUND, np.uint8)


def span(data: bytes) -> tuple[int, int]:
    return len(AROUND), len(AROUND) + len(data)


@settings(deadline=None)
@given(batches())
def test_a_whole_batch_is_found_where_the_twin_finds_it(data: bytes) -> None:
    try:
        expected = len(plain.next_batch(data) or b"")
    except plain.BatchRefused:
        expected = CORRUPT
    assert whole_batch(array(data), *span(data)) == expected


def test_no_part_of_a_batch_is_a_batch() -> None:
    good = batch(b"value")
    for end in range(len(good)):
        assert whole_batch(array(good), len(AROUND), len(AROUND) + end) == NO_BATCH


@settings(deadline=None)
@given(batches(), st.integers(3, 13), st.booleans())
def test_shapes_are_refused_as_by_the_twin(
    data: bytes, version: int, is_transactional: bool
) -> None:
    error, size = check_shape(array(data), *span(data), version, is_transactional)
    try:
        expected = 0, len(plain.shape(data, version, is_transactional=is_transactional))
    except plain.BatchRefused as why:
        expected = why.error, size
    assert (error, size) == expected


@settings(deadline=None)
@given(batches().filter(lambda data: len(data) >= 61))
def test_headers_are_judged_as_by_the_twin(data: bytes) -> None:
    at, _ = span(data)
    header = plain.read_header(data)
    assert check_content(array(data), at, len(data)) == plain.check_content(data)
    known = header.producer_id >= 0 and header.producer_epoch >= 0
    assert is_idempotent(array(data), at) == known
    for number, slot in SLOTS.items():
        expected = plain.check_times(data, LIMITS[number], NOW_MS)
        assert check_times(array(data), at, RIG.log.memory, slot, NOW_MS) == expected


RIG = Rig()


@pytest.mark.parametrize(
    ("first", "count", "last"),
    [(0, 1, 0), (5, 3, 7), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 5, 2)],
)
def test_sequences_wrap_behind_the_largest(first: int, count: int, last: int) -> None:
    data = changed(batch(), base_sequence=first, last_offset_delta=count - 1)
    assert sequences_of(array(data), len(AROUND)) == (first, last)


@pytest.mark.parametrize(("codec", "error"), [(0, plain.INVALID_RECORD), (1, 0)])
def test_plain_records_that_could_not_fit_are_not_believed(codec: int, error: int) -> None:
    data = changed(batch(b""), record_count=3, last_offset_delta=2, attributes=codec)
    assert len(data) - 61 < 3 * 7
    at, _ = span(data)
    assert check_content(array(data), at, len(data)) == plain.check_content(data) == error


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [2**31 - 1, 64 * 1024 * 1024 // 7 + 1, 64 * 1024 * 1024 // 7])
def test_compressed_records_that_no_batch_could_inflate_to_are_not_believed(
    codec: int, count: int
) -> None:
    """Data fault 18: a batch of 100 bytes claimed 2**31 - 1 records, and took as many offsets."""
    data = changed(batch(b""), record_count=count, last_offset_delta=count - 1, attributes=codec)
    at, _ = span(data)
    expected = plain.INVALID_RECORD if count > 64 * 1024 * 1024 // 7 else 0
    assert check_content(array(data), at, len(data)) == plain.check_content(data) == expected


def test_a_batch_must_fit_its_topic_a_segment_and_half_the_ring() -> None:
    log = LogMemory.in_process(0, 1 << 16, 1 << 16, 1)
    log.partitions[0, P_BATCH_BYTES_MAX] = 1 << 40
    half = (1 << 15) - 48
    assert check_size(log.memory, 0, half) == 0
    assert check_size(log.memory, 0, half + 1) == plain.MESSAGE_TOO_LARGE
    log.words[WORD_SEGMENT_BYTES] = 4096
    assert log.words[WORD_RING_BYTES] == 1 << 16
    assert check_size(log.memory, 0, 4096 - 48) == 0
    assert check_size(log.memory, 0, 4096 - 47) == plain.MESSAGE_TOO_LARGE
    log.partitions[0, P_BATCH_BYTES_MAX] = 100
    assert check_size(log.memory, 0, 100) == 0
    assert check_size(log.memory, 0, 101) == plain.MESSAGE_TOO_LARGE
