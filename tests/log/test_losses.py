"""Which starts may have lost records, by level: told across later starts too."""

from pathlib import Path

import pytest

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, WORD_WRITTEN
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.log.losses import BOOT_FILE
from smq.testing.disk import FailingDisk
from tests.log.logs import BOOT, DISK, MEMORY, OS, OTHER_BOOT, append, batch, start, turn


def lost(log: Log, generation: int) -> list[int]:
    """The levels that may have lost records since a generation."""
    return [level for level in (MEMORY, OS, DISK) if log.losses.since(level, generation)]


def test_a_start_with_the_memory_that_was_kept_has_lost_nothing(tmp_path: Path) -> None:
    """Data fault 21."""
    log = start(tmp_path).log
    again = start(tmp_path, generation=1, memory=log.memory).log
    assert lost(again, 0) == []


def test_fresh_memory_has_lost_what_was_in_memory_only(tmp_path: Path) -> None:
    """Data fault 21."""
    start(tmp_path)
    assert lost(start(tmp_path, generation=1).log, 0) == [MEMORY]
    assert lost(start(tmp_path, generation=2).log, 1) == [MEMORY]
    assert lost(start(tmp_path, generation=3).log, 3) == []


def test_another_boot_has_lost_the_page_cache_and_later_starts_know_it(tmp_path: Path) -> None:
    """Data fault 21."""
    start(tmp_path)
    assert lost(start(tmp_path, generation=1, boot=OTHER_BOOT).log, 0) == [MEMORY, OS]
    log = start(tmp_path, generation=2, boot=OTHER_BOOT).log
    assert (lost(log, 0), lost(log, 1)) == ([MEMORY, OS], [MEMORY])
    log = start(tmp_path, generation=3, boot=OTHER_BOOT, memory=log.memory).log
    assert (lost(log, 0), lost(log, 1), lost(log, 2)) == ([MEMORY, OS], [MEMORY], [])


def test_damage_has_lost_records_of_every_level(tmp_path: Path) -> None:
    """Data fault 21."""
    log = start(tmp_path).log
    append(log, 1, batch(b"a"))
    turn(log, syncs=True)
    at = log.tail
    append(log, 1, batch(b"b"))
    append(log, 1, batch(b"c"))
    turn(log, syncs=True)
    with log.wal.segments[0].path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(FRAME_ALIGNMENT_BYTES))
    life = start(tmp_path, generation=1)
    assert life.recovered.damaged
    assert lost(life.log, 0) == [MEMORY, OS, DISK]


def test_a_log_that_ends_before_what_is_sealed_has_lost_records_of_every_level(
    tmp_path: Path,
) -> None:
    start(tmp_path)
    log = start(tmp_path, generation=1).log
    log.losses.lost_synced()
    log.save_losses()
    assert lost(start(tmp_path, generation=2, memory=log.memory).log, 0) == [MEMORY, OS, DISK]


def test_a_raised_level_keeps_the_losses_of_the_former_one(tmp_path: Path) -> None:
    """Data fault 21, its kind: the present level judged what had happened under the former one."""
    start(tmp_path)
    log = start(tmp_path, generation=1, boot=OTHER_BOOT).log
    log.raise_level(OS, DISK)
    assert (lost(log, 0), lost(log, 1)) == ([MEMORY, OS, DISK], [])
    assert log.syncs.wanted == log.words[WORD_WRITTEN], "nor is the rest lost"
    log = start(tmp_path, generation=2, boot=OTHER_BOOT).log
    assert (lost(log, 0), lost(log, 1)) == ([MEMORY, OS, DISK], [MEMORY])
    log.raise_level(MEMORY, OS)
    assert lost(log, 1) == [MEMORY, OS]


@pytest.mark.parametrize("content", [None, b"", BOOT, BOOT + b"short", OTHER_BOOT])
def test_an_unknown_boot_file_means_possible_losses(tmp_path: Path, content: bytes | None) -> None:
    """Data fault 21: a restore, or an earlier version, wrote no more than the boot."""
    start(tmp_path)
    if content is None:
        (tmp_path / BOOT_FILE).unlink()
    else:
        (tmp_path / BOOT_FILE).write_bytes(content)
    assert lost(start(tmp_path, generation=1).log, 0) == [MEMORY, OS]


def test_a_start_that_could_not_tell_it_is_known_to_the_next_one(tmp_path: Path) -> None:
    """Data fault 21: the disk was full."""
    start(tmp_path)
    before = (tmp_path / BOOT_FILE).read_bytes()
    log = start(tmp_path, generation=1).log
    (tmp_path / BOOT_FILE).write_bytes(before)
    again = start(tmp_path, generation=2, memory=log.memory).log
    assert lost(again, 0) == [MEMORY, OS]


@pytest.mark.parametrize("failing", ["replace", "write"])
def test_a_start_that_could_not_tell_it_tells_it_once_it_can(tmp_path: Path, failing: str) -> None:
    """Data fault 21, its kind: the log was repaired, and the file stayed as it was: each later
    start took this one for a loss, and commits of its transactions aborted."""
    start(tmp_path)
    disk = FailingDisk(OsDisk())
    disk.fail(failing)
    log = start(tmp_path, generation=1, disk=disk).log
    log.raise_level(OS, DISK)
    log.tend()
    saved = [log.losses.is_saved]
    disk.heal()
    log.tend()
    log.tend()
    saved.append(log.losses.is_saved)
    assert saved == [False, True]
    again = start(tmp_path, generation=2, memory=log.memory).log
    assert lost(again, 1) == []
