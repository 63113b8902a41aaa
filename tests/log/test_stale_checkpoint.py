"""Starts with a checkpoint that knew more than the log has, and that no newer one has replaced.

A checkpoint's position is the tail, of which the disk may lose what was not synced. Until the next
checkpoint is durable, frames of the new life lie at positions that the checkpoint claims to know.
"""

import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest

from shm.kernels.base.words import P_LOG_END
from smq.log.files.checkpoint import FILE_NAME
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.partitions import PartitionSettings
from smq.testing.disk import FailingDisk
from tests.log.logs import (
    DISK,
    OS,
    OTHER_BOOT,
    append,
    batch,
    high_watermark,
    read,
    start,
    turn,
)
from tests.log.test_recovery import cut

LOST, NEW = 2, 3  # A partition that loses records, one that the checkpoint does not know.
KEPT, WRITTEN = 10, 13  # Records of the first one: what the disk keeps, what the checkpoint knew.


class RefusingDisk(FailingDisk):
    """A disk that has no space for files whose names end so."""

    def __init__(self, *suffixes: str) -> None:
        super().__init__(OsDisk())
        self._suffixes = suffixes

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk."""
        if path.name.endswith(self._suffixes):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace(path, data)


def numbered(i: int, producer_id: int = 9, value_bytes: int = 100) -> bytes:
    return batch(b"%d" % i * value_bytes, producer_id=producer_id, epoch=0, sequence=i)


def cut_off(directory: Path, value_bytes: int = 100) -> int:
    """A life whose last records a power loss took; the position that its checkpoint knew."""
    log = start(directory, levels={LOST: OS}).log
    for i in range(WRITTEN):
        if i == KEPT:
            position = log.tail
        append(log, LOST, numbered(i, value_bytes=value_bytes))
        turn(log, syncs=False)
    log.checkpoint()
    log.wal.close()
    cut(directory, position)
    return log.tail


def second_life(directory: Path, known_to: int, *suffixes: str) -> Log:
    """The start after the power loss, on a disk that takes no checkpoint."""
    disk = RefusingDisk(*(suffixes or (FILE_NAME,)))
    log = start(
        directory, generation=1, boot=OTHER_BOOT, disk=disk, levels={LOST: OS, NEW: DISK}
    ).log
    assert log.tail < known_to
    assert log_end(log, LOST) == KEPT
    return log


def killed(log: Log) -> None:
    log.wal.close()


def third_life(directory: Path) -> Log:
    return start(directory, generation=2, boot=OTHER_BOOT, levels={LOST: OS, NEW: DISK}).log


def log_end(log: Log, number: int) -> int:
    return int(log.partitions.table[log.partitions.slots[number], P_LOG_END])


def test_a_partition_that_the_checkpoint_does_not_know_keeps_its_acked_records(
    tmp_path: Path,
) -> None:
    known_to = cut_off(tmp_path)
    log = second_life(tmp_path, known_to)
    for i in range(3):
        append(log, NEW, batch(b"acked %d" % i))
        turn(log)
    assert high_watermark(log, NEW) == 3
    assert log.tail < known_to
    killed(log)
    again = third_life(tmp_path)
    assert read(again, NEW) == {i: b"acked %d" % i for i in range(3)}
    assert append(again, NEW, batch(b"next")) == 3


def test_a_batch_that_was_sent_again_after_the_loss_is_not_appended_once_more(
    tmp_path: Path,
) -> None:
    log = second_life(tmp_path, cut_off(tmp_path))
    assert append(log, NEW, numbered(0)) == 0
    assert append(log, LOST, numbered(KEPT)) == KEPT
    turn(log)
    killed(log)
    again = third_life(tmp_path)
    assert append(again, NEW, numbered(0)) == 0
    assert append(again, LOST, numbered(KEPT)) == KEPT
    assert log_end(again, LOST) == KEPT + 1
    assert log_end(again, NEW) == 1


def test_a_batch_that_was_lost_is_appended_though_others_have_its_offset_now(
    tmp_path: Path,
) -> None:
    log = second_life(tmp_path, cut_off(tmp_path))
    for i in range(3):
        append(log, LOST, numbered(i, producer_id=77))
    turn(log)
    killed(log)
    again = third_life(tmp_path)
    assert append(again, LOST, numbered(KEPT)) == KEPT + 3


def test_a_log_that_grows_past_the_lost_position_has_no_offsets_without_records(
    tmp_path: Path,
) -> None:
    known_to = cut_off(tmp_path)
    log = second_life(tmp_path, known_to)
    append(log, LOST, batch(b"one"))
    while log.tail <= known_to:
        append(log, NEW, batch(b"x" * 100))
        turn(log)
    killed(log)
    again = third_life(tmp_path)
    assert log_end(again, LOST) == high_watermark(again, LOST) == KEPT + 1
    assert len(read(again, LOST)) == KEPT + 1


def test_epochs_name_the_cut_also_after_another_start(tmp_path: Path) -> None:
    log = start(tmp_path, levels={LOST: OS}).log
    append(log, LOST, batch(b"kept"))
    turn(log)
    killed(log)
    log = start(tmp_path, generation=1, levels={LOST: OS}).log
    for _ in range(3):
        append(log, LOST, batch(b"kept as well"))
        turn(log)
    killed(log)
    log = start(tmp_path, generation=2, levels={LOST: OS}).log
    position = log.tail
    for _ in range(9):
        append(log, LOST, batch(b"lost"))
        turn(log, syncs=False)
    log.checkpoint()
    assert log.partitions.epochs[LOST] == [(0, 0), (1, 1), (2, 4)]
    killed(log)
    cut(tmp_path, position - 64 - len(batch(b"kept as well")))  # And the last of epoch 1.
    levels = {LOST: OS}
    disk = RefusingDisk(FILE_NAME)
    log = start(tmp_path, generation=3, boot=OTHER_BOOT, disk=disk, levels=levels).log
    end = log_end(log, LOST)
    assert end < 4
    append(log, LOST, batch(b"new"))
    turn(log)
    assert log.partitions.epochs[LOST] == [(0, 0), (1, 1), (3, end)]
    killed(log)
    log = start(tmp_path, generation=4, boot=OTHER_BOOT, levels=levels).log
    history = log.partitions.epochs[LOST]
    assert history[:3] == [(0, 0), (1, 1), (3, end)]
    assert all(before[1] < after[1] for before, after in pairwise(history))
    assert log.partitions.end_of_epoch(LOST, 2) == (1, end)


def test_tables_of_segments_that_a_later_life_filled_are_not_taken_for_known(
    tmp_path: Path,
) -> None:
    known_to = cut_off(tmp_path, value_bytes=1800)
    log = second_life(tmp_path, known_to)
    first = log.wal.segments[-1]
    for sequence in range(1000):
        append(log, NEW, numbered(sequence))
        turn(log)
        if len(log.wal.segments) > 1 and log.wal.segments[-2] is not first:
            break
    assert log.tail < known_to
    assert first.index_path.exists()
    killed(log)
    again = third_life(tmp_path)
    assert read(again, NEW) == {i: b"%d" % i * 100 for i in range(sequence + 1)}
    assert append(again, NEW, numbered(sequence)) == sequence


def test_a_table_of_lost_frames_is_never_believed_again(tmp_path: Path) -> None:
    """It was filed, the frames were not synced; the next table of the segment cannot be filed."""
    log = start(tmp_path, levels={LOST: OS}).log
    i = 0
    while len(log.wal.segments) < 2:
        append(log, LOST, numbered(i, value_bytes=100))
        turn(log, syncs=False)
        i += 1
    assert log.wal.segments[0].index_path.exists()
    killed(log)
    cut(tmp_path, log.wal.segments[0].end // 2)
    log = second_life_without_tables(tmp_path)
    kept = log_end(log, LOST)
    assert 0 < kept < i
    while len(log.wal.segments) < 2:
        append(log, LOST, batch(b"new" * 70))
        turn(log)
    turn(log)
    log.checkpoint()
    before = read(log, LOST)
    killed(log)
    assert read(third_life(tmp_path), LOST) == before


def second_life_without_tables(directory: Path) -> Log:
    disk = RefusingDisk(".index")
    return start(directory, generation=1, boot=OTHER_BOOT, disk=disk, levels={LOST: OS}).log


@pytest.mark.parametrize("number", [LOST, NEW])
def test_a_checkpoint_ahead_of_the_wal_loses_no_producer_of_the_ring(
    tmp_path: Path, number: int
) -> None:
    """A shard takes a checkpoint in the midst of a turn, and dies before it writes."""
    levels = {LOST: OS, NEW: OS}
    log = start(tmp_path, levels=levels).log
    append(log, LOST, numbered(0))
    turn(log)
    sequence = int(number == LOST)
    offset = append(log, number, numbered(sequence))
    log.checkpoint()
    again = start(tmp_path, generation=1, memory=log.memory, levels=levels).log
    assert append(again, number, numbered(sequence)) == offset
    assert log_end(again, number) == offset + 1


def test_offsets_of_a_damaged_batch_are_not_used_again_where_no_other_frame_has_its_partition(
    tmp_path: Path,
) -> None:
    log = start(tmp_path, levels={LOST: OS, NEW: OS}).log
    log.drop_partitions([NEW])
    log.checkpoint()
    log.adopt(NEW, PartitionSettings(OS, 1 << 20))
    position = log.tail
    append(log, NEW, batch(b"damaged", b"as well"))
    append(log, LOST, batch(b"what follows tells damage from a torn end"))
    turn(log)
    killed(log)
    flip(tmp_path, position + 48 + 70)
    again, recovered = start(tmp_path, generation=1, levels={LOST: OS, NEW: OS})
    assert len(recovered.damaged) == 1
    assert append(again, NEW, batch(b"next")) == 2


def flip(directory: Path, position: int) -> None:
    """Change one bit of the first segment."""
    path = min(directory.glob("*.wal"))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
