"""Where batches lie: the window first, then filed tables; sums and gaps."""

from itertools import pairwise
from pathlib import Path

import pytest

from shm.kernels.base.words import FRAME_HEADER_BYTES, P_UNSEALED_BYTES, WORD_INDEX_TAIL
from smq.log.log import Log
from smq.log.lookup import IndexedBatch
from tests.log.logs import OS, append, batch, fill, high_watermark, start, turn

ALL = 1 << 30


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Partition 1 has 40 batches of two records in ten segments, partition 2 one, the oldest."""
    log = start(tmp_path, levels={1: OS, 2: OS}).log
    append(log, 2, batch(b"idle"))
    for i in range(40):
        append(log, 1, batch(bytes([i]) * 400, bytes([i]) * 400))
        turn(log)
    return log


def offsets(log: Log, offset: int, limit: int = 80, bytes_max: int = ALL) -> list[int] | None:
    """The base offsets of what is found."""
    found = log.find(1, offset, limit, bytes_max)
    if found is None:
        return None
    places = [log.lookup.place_of(1, p - FRAME_HEADER_BYTES) for p in found.spans[:, 0].tolist()]
    return [place.base_offset for place in places if place is not None]


@pytest.mark.parametrize("offset", [0, 1, 2, 33, 34, 78, 79])
def test_the_first_batch_holds_the_offset_and_the_next_follow(log: Log, offset: int) -> None:
    found = offsets(log, offset)
    assert found
    first = offset - offset % 2
    assert found == list(range(first, first + 2 * len(found), 2))


def test_limits_of_offset_and_size_hold_in_tables_and_window(log: Log) -> None:
    for offset in (0, 76):
        assert offsets(log, offset, limit=offset + 2) == [offset]
        assert offsets(log, offset, bytes_max=1) == [offset]
        assert offsets(log, offset, limit=offset) == []


def test_sums_agree_with_the_batches_there_are(log: Log) -> None:
    slot = log.partitions.slots[1]
    size = len(batch(bytes(400), bytes(400)))
    for offset in range(0, 80, 2):
        assert log.lookup.bytes_from(1, slot, offset) == size * (80 - offset) // 2
    assert log.lookup.bytes_from(1, slot, 80) == 0
    assert log.partitions.table[slot, P_UNSEALED_BYTES] == 40 * size


def test_sealed_and_freed_records_are_not_found_in_the_log(log: Log) -> None:
    log.sealing.advance(1, 60, 1)
    log.checkpoint()
    first = offsets(log, 0)
    assert first is not None
    assert first[0] == 0
    assert offsets(log, len(first) * 2) is None
    last = offsets(log, 58)
    assert last is None or last[0] == 58
    assert offsets(log, 60)


def test_every_entry_is_found_by_its_position(log: Log) -> None:
    segment = log.wal.segments[0]
    assert log.lookup.partition_at(0, segment) == -1
    assert log.lookup.partition_at(64, segment) == 2
    assert log.lookup.place_of(2, 64) == IndexedBatch(2, 0, 1)
    assert log.lookup.place_of(1, 8) is None


def test_an_entry_is_the_first_at_or_after_its_position(log: Log) -> None:
    tail = log.words[WORD_INDEX_TAIL]
    last = log.lookup.entries(tail - 1, tail)[0]
    position = int(last["position"])
    assert log.lookup.entry_at(position) == tail - 1
    assert log.lookup.entry_at(position + 64) == tail
    assert int(last["base_offset"] + last["record_count"]) == high_watermark(log, 1)


def test_lost_offsets_are_passed_over(log: Log) -> None:
    for base in (10, 12, 78):
        log.lookup.lose(IndexedBatch(1, base, base + 2))
    assert offsets(log, 8) == [8]
    assert log.lookup.behind_damage(1, 11) == 14
    found = offsets(log, 10)
    assert found
    assert found[0] == 14
    assert offsets(log, 78) == []
    log.lookup.drop(1)
    assert log.lookup.behind_damage(1, 11) == 11


def test_batches_that_are_lost_one_by_one_are_passed_over_as_one(log: Log) -> None:
    """Each look-up walked over all of them: 10 ms of the loop for 200,000."""
    for base in (10, 14, 12):
        log.lookup.lose(IndexedBatch(1, base, base + 2))
    log.lookup.invariants()
    assert log.lookup.behind_damage(1, 10) == 16
    assert offsets(log, 8, limit=18) == [8]
    assert not log.lookup.has_damage_from(1, 16)
    log.lookup.lose(IndexedBatch(1, 30, 32), needed_from=20)
    assert log.lookup.behind_damage(1, 10) == 10
    assert log.lookup.behind_damage(1, 30) == 32


def test_a_reader_passes_over_what_was_lost_behind_a_gap(tmp_path: Path) -> None:
    """No segment has what a start found damaged, and no look-up knows it as lost."""
    log = start(tmp_path).log
    log.partitions.extend(1, 10)
    fill(log, count=60)
    for base in (10, 11, 13):
        log.lookup.lose(IndexedBatch(1, base, base + 1))
    assert offsets(log, 5, limit=70) == offsets(log, 5, limit=13) == [12]
    assert offsets(log, 5, limit=11) == []
    log.lookup.lose(IndexedBatch(1, 12, 13))
    found = offsets(log, 5)
    assert found
    assert found[0] == 14


def test_full_segments_tell_what_they_hold_of_a_partition(log: Log) -> None:
    full = log.wal.segments[:-1]
    size = len(batch(bytes(400), bytes(400)))
    parts = log.lookup.filed_from(1, 0)
    assert [end for end, _, _ in parts] == [s.index.ends[1] for s in full if s.index is not None]
    assert [total for _, _, total in parts] == [
        size * (end - before) // 2 for before, end in pairwise([0, *(end for end, _, _ in parts)])
    ]
    assert log.lookup.filed_from(1, parts[0][0]) == parts[1:]
    assert log.lookup.filed_from(1, parts[0][0] - 2)[0][2] == size
    assert log.lookup.filed_from(3, 0) == []


@pytest.mark.parametrize("sealed_end", [0, 20, 60, 80])
def test_nothing_is_found_below_the_oldest_offset(log: Log, sealed_end: int) -> None:
    """The window still has the entries of segments that are freed, and the ring their records."""
    log.sealing.advance(2, 1, 1)
    log.sealing.advance(1, sealed_end, 1)
    log.checkpoint()
    turn(log)
    found = [offset for offset in range(0, 80, 2) if offsets(log, offset) is not None]
    oldest = log.lookup.oldest_offset(1, log.partitions.slots[1])
    assert oldest is not None
    assert oldest <= found[0]
