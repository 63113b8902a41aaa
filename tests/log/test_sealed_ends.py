"""How far partitions are sealed; unsealed bytes, and since when."""

import time
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    P_DECIDED_END,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_LOG_END,
    P_LOG_START,
    P_SEALED_END,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
    WORD_SYNCED,
)
from smq.log.files.checkpoint import FILE_NAME, Open, TransactionsCopy
from smq.log.repair import hide_unsynced
from smq.model.segments import KnownEnds
from tests.log.logs import (
    NOW_MS,
    OS,
    append,
    batch,
    fill,
    memory_of,
    read,
    row,
    start,
    turn,
)


def test_retention_may_drop_what_was_never_sealed(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log)
    log.sealing.set_log_start(1, 30)
    log.checkpoint()
    assert int(row(log)[P_LOG_START]) == int(row(log)[P_SEALED_END]) == 30
    assert log.find(1, 0, 40, 1) is None
    assert sorted(read(log, 1, 30)) == list(range(30, 40))
    assert log.wal.segments[0].start > 0
    log.wal.close()
    log = start(tmp_path, generation=1).log
    assert int(row(log)[P_LOG_START]) == 30


def test_unsealed_bytes_are_as_old_as_the_last_seal(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log, count=10)
    size = sum(len(batch(b"%d" % i * 200)) for i in range(10))
    assert (row(log)[P_UNSEALED_BYTES], row(log)[P_UNSEALED_SINCE_MS]) == (size, NOW_MS)
    log.sealing.advance(1, 9, NOW_MS + 5)
    assert row(log)[P_UNSEALED_BYTES] == len(batch(b"9" * 200))
    assert row(log)[P_UNSEALED_SINCE_MS] == NOW_MS + 5
    log.sealing.advance(1, 10, NOW_MS + 6)
    assert (row(log)[P_UNSEALED_BYTES], row(log)[P_UNSEALED_SINCE_MS]) == (0, 0)


def test_sealed_segments_that_reach_further_than_the_log_are_believed(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log, count=3)
    log.sealing.advance(1, 8, NOW_MS)
    log.invariants()
    assert int(row(log)[P_LOG_END]) == 8
    assert append(log, 1, batch(b"next")) == 8


def test_sealed_records_are_shown_that_no_sync_has_covered(tmp_path: Path) -> None:
    log = start(tmp_path).log
    fill(log, count=3)
    log.words[WORD_SYNCED] = 0
    hide_unsynced(log, 1)
    assert int(row(log)[P_HIGH_WATERMARK]) == 0
    assert log.sealing.advance(1, 2, NOW_MS)
    assert not log.sealing.advance(1, 2, NOW_MS), "nobody need look"
    log.invariants()
    assert (row(log)[P_HIGH_WATERMARK], row(log)[P_LAST_STABLE]) == (2, 2)
    assert int(row(log)[P_LOG_END]) == 3


def test_compacted_records_are_not_read_from_the_log_even_after_a_restart(tmp_path: Path) -> None:
    """Data fault 22: kept segments of the WAL have a value whose tombstone is gone."""
    log = start(tmp_path, bytes_max=1 << 20, keep_bytes_max=1 << 20).log
    fill(log)
    log.sealing.advance(1, 30, NOW_MS)
    assert sorted(read(log, 1)) == list(range(40))
    log.sealing.compact(1, 30, NOW_MS)
    log.sealing.compact(1, 20, NOW_MS)  # One that comes late.
    log.checkpoint()
    log.invariants()
    for generation in (1, 2):
        assert log.find(1, 29, 40, 1) is None
        assert sorted(read(log, 1, 30)) == list(range(30, 40))
        log.wal.close()
        log = start(tmp_path, generation=generation, bytes_max=1 << 20, keep_bytes_max=1 << 20).log


def test_without_its_newest_checkpoint_a_log_shows_nothing_that_may_be_compacted(
    tmp_path: Path,
) -> None:
    """Data fault 22: which records are compacted was in the checkpoint that is damaged."""
    options = {"bytes_max": 1 << 20, "keep_bytes_max": 1 << 20}
    log = start(tmp_path, **options).log  # type: ignore[arg-type]
    fill(log)
    log.sealing.advance(1, 30, NOW_MS)
    log.checkpoint()
    log.sealing.compact(1, 30, NOW_MS)
    log.checkpoint()
    log.wal.close()
    (tmp_path / FILE_NAME).write_bytes(b"damaged")
    log = start(tmp_path, generation=1, **options).log  # type: ignore[arg-type]
    assert log.find(1, 29, 40, 1) is None
    log.invariants()


def test_a_thousand_partitions_cost_the_loop_little(tmp_path: Path) -> None:
    memory = memory_of(1 << 20, 1 << 18, 2000)
    levels = dict.fromkeys(range(1, 1001), OS)
    log = start(tmp_path, memory=memory, segment_bytes=1 << 18, levels=levels).log
    for i in range(4000):
        append(log, 1 + i % 1000, batch(b"v" * 50))
        if i % 100 == 0:
            turn(log)
    turn(log)
    began = time.perf_counter()
    for number in levels:
        log.sealing.advance(number, 3, NOW_MS)
    sealing_s = (time.perf_counter() - began) / len(levels)
    began = time.perf_counter()
    log.freeing.snapshot()
    snapshot_s = time.perf_counter() - began
    # Wide, for a busy machine: they must catch work for each frame instead of each partition.
    assert sealing_s < 0.1
    assert snapshot_s < 2


def test_records_sealed_undecided_keep_their_transactions(tmp_path: Path) -> None:
    """Use fault 2: which are open and which were aborted is known from the decided end on, also
    after a restart without the log's frames."""
    log = start(tmp_path).log
    log.transactions.wrote(Open(1, 7, 0, 3, NOW_MS))
    log.transactions.restore(TransactionsCopy([], [np.array([[1, 5, 0, 2, 9], [1, 6, 0, 12, 20]])]))
    fill(log)
    log.sealing.advance(1, 2, NOW_MS)
    log.sealing.advance(1, 40, NOW_MS, is_decided=False)
    for generation in (1, 2):
        log.checkpoint()
        log.tend()
        log.invariants()
        assert len(log.wal.segments) == 1
        assert (row(log)[P_DECIDED_END], row(log)[P_SEALED_END]) == (2, 40)
        assert row(log)[P_LAST_STABLE] == 3
        assert [each.first_offset for each in log.transactions.opened()] == [3]
        told = log.transactions.aborted_in(1, 2, 40, 9).rows
        assert [each.producer_id for each in told] == [5, 6]
        log.close()
        log = start(tmp_path, generation=generation).log
    log.sealing.advance(1, 15, NOW_MS)
    log.invariants()
    told = log.transactions.aborted_in(1, 2, 40, 9).rows
    assert [each.producer_id for each in told] == [6]


@pytest.mark.parametrize("offset", [10, 40, 50])
def test_a_log_start_above_the_decided_end_raises_it(tmp_path: Path, offset: int) -> None:
    """Use fault 2: DeleteRecords of what is sealed as it was sent."""
    log = start(tmp_path).log
    fill(log, count=60)
    log.transactions.wrote(Open(1, 7, 0, 3, NOW_MS))
    log.sealing.advance(1, 40, NOW_MS, is_decided=False)
    log.sealing.set_log_start(1, offset)
    log.invariants()
    assert row(log)[P_DECIDED_END] == row(log)[P_LOG_START] == offset
    assert row(log)[P_SEALED_END] == max(40, offset)
    assert row(log)[P_LAST_STABLE] == offset
    assert [each.first_offset for each in log.transactions.opened()] == [3]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (KnownEnds(1, 0, 10, 0), (0, 0, 0, 10)),  # The log knows of all of it.
        (KnownEnds(1, 5, 25, 0), (5, 25, 25, 25)),
        (KnownEnds(1, 30, 25, 0), (30, 30, 30, 30)),
        (KnownEnds(1, 0, 8, 12), (0, 12, 8, 12)),
    ],
)
def test_a_partition_goes_on_behind_what_the_manifest_has_of_it(
    tmp_path: Path, known: KnownEnds, expected: tuple[int, ...]
) -> None:
    log = start(tmp_path, generation=4).log
    fill(log, count=10)
    assert log.sealing.raise_end(known, NOW_MS) == (known.end > 10)
    columns = P_LOG_START, P_SEALED_END, P_DECIDED_END, P_LOG_END
    assert tuple(int(row(log)[each]) for each in columns) == expected
    log.invariants()
    log.checkpoint()
    log.wal.close()
    log = start(tmp_path, generation=5).log
    assert tuple(int(row(log)[each]) for each in columns) == expected
    assert log.partitions.end_of_epoch(1, 4) == (4, expected[-1])
