"""A fetch's batches: whole, in order, within its limits, and none damaged."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import FRAME_HEADER_BYTES, FRAME_KIND_BATCH, P_LOG_END
from shm.kernels.log.spans import NOT_IN_WINDOW, choose_batches, gather, gather_checked
from tests.oracle.batches import batch
from tests.shm.kernels.indexes import SLOTS, Index, appends
from tests.shm.kernels.rig import Rig, request_of

offsets = st.one_of(st.integers(-1, 8), st.integers(-1, 60))
limits = st.one_of(st.just(2**62), offsets)
sizes = st.sampled_from([0, 1, 69, 70, 140, 500, 1 << 40])


@settings(deadline=None)
@given(
    appends,
    st.integers(0, SLOTS - 1),
    offsets,
    st.tuples(limits, sizes, st.integers(1, 5)),
)
def test_batches_are_chosen_as_by_the_twin(
    batches: list[tuple[int, int, int]], slot: int, offset: int, bounds: tuple[int, int, int]
) -> None:
    limit, bytes_max, count_max = bounds
    index, spans = Index(batches), np.zeros((count_max, 2), np.int64)
    args = (index.log.memory, index.links, slot, offset, limit, bytes_max)
    count, total = choose_batches(*args, spans)
    expected = index.twin.choose(slot, offset, limit, bytes_max, count_max)
    if expected is None:
        assert (count, total) == (NOT_IN_WINDOW, 0)
    else:
        assert [tuple(span) for span in spans[:count].tolist()] == expected
        assert total == sum(size for _, size in expected)


def test_a_batch_that_begins_at_the_limit_is_not_chosen() -> None:
    index, spans = Index([(0, 3, 0), (0, 2, 0), (0, 1, 0)]), np.zeros((4, 2), np.int64)
    counts = [
        choose_batches(index.log.memory, index.links, 0, 0, limit, 1000, spans)[0]
        for limit in (0, 1, 3, 4, 5, 6)
    ]
    assert counts == [0, 1, 1, 2, 2, 3]


def test_the_end_of_a_partition_has_no_batch_and_is_in_the_window() -> None:
    index, spans = Index([(0, 3, 0)]), np.zeros((4, 2), np.int64)
    end = int(index.log.partitions[0, P_LOG_END])
    args = (index.log.memory, index.links, 0, end, end, 1000)
    assert choose_batches(*args, spans) == (0, 0)


def filled() -> tuple[Rig, np.ndarray]:
    """A log with some batches, and the places of all of them."""
    rig = Rig()
    for value in (b"one", b"two" * 50, b"three" * 30, b"4"):
        rig.receive(request_of([("a", [(0, batch(value)), (1, batch(value))])]))
    places = [
        (frame.position + FRAME_HEADER_BYTES, len(frame.content))
        for frame in rig.frames()
        if frame.kind == FRAME_KIND_BATCH
    ]
    return rig, np.array(places, np.int64)


def test_batches_are_gathered_one_after_another_from_ring_and_wal_alike() -> None:
    rig, spans = filled()
    whole = b"".join(each.content for each in rig.frames() if each.kind == FRAME_KIND_BATCH)
    out = np.zeros(len(whole) + 5, np.uint8)
    assert gather(rig.log.ring, spans, len(spans), out) == len(whole)
    assert out.tobytes() == whole + bytes(5)
    out[:] = 0
    data = np.frombuffer(b"junk" + rig.wal, np.uint8)
    assert gather_checked(data[4:].copy(), 0, spans, out, 3) == len(whole) + 3
    assert out[3:-2].tobytes() == whole


def test_a_span_that_lies_a_lap_further_is_gathered_from_the_same_place() -> None:
    rig, spans = filled()
    out, later = np.zeros((2, 5000), np.uint8)
    size = gather(rig.log.ring, spans[:2], 2, out)
    spans[:, 0] += 3 * len(rig.log.ring)
    assert gather(rig.log.ring, spans[:2], 2, later) == size
    assert (out == later).all()


@pytest.mark.parametrize("broken", [0, 3, 7])
def test_a_damaged_batch_is_named_whichever_byte_it_is(broken: int) -> None:
    rig, spans = filled()
    start, size = spans[broken].tolist()
    out = np.zeros(5000, np.uint8)
    for at in range(start - FRAME_HEADER_BYTES, start + size):
        data = np.frombuffer(rig.wal, np.uint8).copy()
        data[at] ^= 1
        assert gather_checked(data, 0, spans, out, 0) == -1 - broken


def test_a_frame_of_another_kind_is_not_gathered_though_a_good_batch_lies_in_it() -> None:
    rig, spans = filled()
    frame = next(each for each in rig.frames() if each.kind == FRAME_KIND_BATCH)
    data, out = np.frombuffer(rig.wal, np.uint8).copy(), np.zeros(5000, np.uint8)
    for kind, found in ((FRAME_KIND_BATCH, len(frame.content)), (3, -1)):
        whole = np.frombuffer(frame._replace(kind=kind).encode(), np.uint8)
        data[frame.position :][: len(whole)] = whole
        assert gather_checked(data, 0, spans[:1], out, 0) == found


def test_bytes_that_end_too_early_or_are_of_elsewhere_are_not_gathered() -> None:
    rig, spans = filled()
    data, out = np.frombuffer(rig.wal, np.uint8), np.zeros(5000, np.uint8)
    last = int(spans[-1].sum())
    assert gather_checked(data[: last - 1].copy(), 0, spans, out, 0) == -len(spans)
    assert gather_checked(data.copy(), -64, spans, out, 0) == -1
