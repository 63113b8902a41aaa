"""Starts on a failing disk: safe records are served, the rest is reported."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shm.kernels.base.words import WORD_SYNCED, WORD_WRITTEN
from smq.log.files.checkpoint import FILE_NAME
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import QUARANTINE
from smq.log.files.start_reads import WAIT_MS, UnreadableFile
from smq.log.log import Log
from smq.log.losses import BOOT_FILE
from smq.log.own_tries import RETRY_MS
from smq.log.reading import DamagedFrame
from smq.log.repair import NOTE
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.logs import (
    BOOT,
    DISK,
    OTHER_BOOT,
    RING_BYTES,
    Refused,
    append,
    batch,
    high_watermark,
    read,
    start,
    wait,
)
from tests.log.test_recovery import LEVELS, contents, fill, filled


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk(OsDisk())


def test_a_start_whose_sync_fails_serves_what_is_safe_and_says_why(
    tmp_path: Path, disk: FailingDisk
) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 5)
    synced = contents(log)
    fill(log, 5, b"late", syncs=False)
    before = contents(log)
    log.wal.close()
    disk.fail("sync")
    again = start(tmp_path, generation=1, disk=disk, levels=LEVELS).log
    assert contents(again) == {1: before[1], 2: before[2], 3: synced[3]}
    for number in LEVELS:
        with pytest.raises(Refused):
            append(again, number, batch(b"refused"))
    assert again.failed is not None
    assert "cannot be synced: " in again.failed
    assert again.failed in again.notices[0]
    disk.heal()
    again.tend()  # What the kernel has dropped it does not tell: only a start reads it anew.
    assert again.failed is not None
    again.close()
    third = start(tmp_path, generation=2, levels=LEVELS).log
    third.publish(DISK)
    assert third.failed is None
    assert {number: len(found) for number, found in contents(third).items()} == dict.fromkeys(
        LEVELS, 10
    )


def test_a_shard_whose_start_cannot_sync_serves_what_it_has_acked(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """No frame names the last sync: its memory does."""
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 5)
    before = contents(log)
    log.wal.close()
    disk.fail("sync")
    again = start(tmp_path, generation=1, memory=log.memory, disk=disk, levels=LEVELS).log
    assert again.failed is not None
    assert contents(again) == before


@pytest.mark.parametrize("method", ["write", "replace", "remove", "rename", "create"])
def test_a_disk_that_takes_nothing_leaves_a_log_that_can_be_read(
    tmp_path: Path, disk: FailingDisk, method: str
) -> None:
    before = filled(tmp_path)
    disk.fail(method, error=errno.ENOSPC)
    again = start(tmp_path, generation=1, disk=disk, levels=LEVELS).log
    assert contents(again) == before
    if again.failed is not None:
        assert "No space left" in again.failed
        disk.heal()
        again.tend()
    disk.heal()
    assert again.failed is None
    fill(again, 3, b"new")
    after = contents(again)
    again.close()
    assert contents(start(tmp_path, generation=2, levels=LEVELS).log) == after


def files_of(directory: Path) -> dict[str, bytes]:
    """What the log's files are and hold."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def copy_with_zeros(path: Path, start: int, end: int) -> None:
    """What an operator does with a file of which some bytes are lost."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))


@pytest.mark.parametrize("is_last", [False, True], ids=["a full segment", "the last segment"])
def test_a_page_that_must_be_scanned_and_cannot_be_read_fails_the_start_until_it_is_lost(
    tmp_path: Path, disk: FailingDisk, is_last: bool
) -> None:
    log = start(tmp_path, levels=LEVELS, segment_bytes=RING_BYTES).log
    fill(log, 150)
    while log.tail - log.wal.segments[-1].start < 3 * PAGE_BYTES:
        fill(log, 1)
    before = contents(log)
    segment = log.wal.segments[-1 if is_last else 1]
    log.wal.close()
    for index in tmp_path.glob("*.index"):
        index.unlink()
    middle = (min(log.tail, segment.end) - segment.start) // 2 // PAGE_BYTES * PAGE_BYTES
    disk.bad_places = [(segment.path.name, middle, middle + 1)]
    last = log.wal.segments[-1].path.name
    found = files_of(tmp_path)[last]
    for _ in range(2):
        with pytest.raises(UnreadableFile, match=f"{segment.path} cannot be read: .*ddrescue"):
            start(tmp_path, generation=1, disk=disk, levels=LEVELS, segment_bytes=RING_BYTES)
        assert files_of(tmp_path)[last] == found
        assert open_files(tmp_path) == []
    copy_with_zeros(segment.path, middle, middle + PAGE_BYTES)
    again, recovered = start(tmp_path, generation=2, levels=LEVELS, segment_bytes=RING_BYTES)
    assert any(str(segment.path) in line and "are lost" in line for line in recovered.damaged)
    assert (tmp_path / QUARANTINE).exists()
    after = {number: everything(again, number) for number in LEVELS}
    lost = sum(len(before[n]) - len(after[n]) for n in LEVELS)
    assert 0 < lost <= PAGE_BYTES // 128 + 2
    assert all(before[n][offset] == value for n in LEVELS for offset, value in after[n].items())


def first_three(paths: list[Path]) -> list[tuple[str, int, int]]:
    return [(path.name, 0, 1 << 40) for path in paths[:3]]


def first_pages(paths: list[Path]) -> list[tuple[str, int, int]]:
    return [(path.name, 0, PAGE_BYTES) for path in paths[:3]]


def last_page(paths: list[Path]) -> list[tuple[str, int, int]]:
    """What a scan meets last: what lies before it seems to end there."""
    return [(paths[-1].name, 0, 1)]


def all_of_them(paths: list[Path]) -> list[tuple[str, int, int]]:
    return [(path.name, 0, 1 << 40) for path in paths]


@pytest.mark.parametrize("places", [first_three, first_pages, last_page, all_of_them])
@pytest.mark.parametrize(
    ("is_kept", "boot"),
    [(True, BOOT), (False, BOOT), (False, OTHER_BOOT)],
    ids=["a shard died", "all died", "the power failed"],
)
@pytest.mark.parametrize("missing", ["", "*.index", FILE_NAME])
def test_an_error_of_the_disk_that_ends_costs_nothing(  # noqa: PLR0913, PLR0917
    tmp_path: Path,
    disk: FailingDisk,
    places: Callable[[list[Path]], list[tuple[str, int, int]]],
    is_kept: bool,
    boot: bytes,
    missing: str,
) -> None:
    log = start(tmp_path, levels=LEVELS, segment_bytes=RING_BYTES).log
    fill(log, 120)
    before = contents(log)
    log.checkpoint()
    segments = log.wal.segments
    log.wal.close()
    memory = log.memory if is_kept else None
    for path in tmp_path.glob(missing) if missing else ():
        path.unlink()
    disk.bad_places = places([segment.path for segment in segments])
    for generation in (1, 2, 3):
        try:
            again = start(
                tmp_path,
                generation=generation,
                disk=disk,
                levels=LEVELS,
                segment_bytes=RING_BYTES,
                memory=memory,
                boot=boot,
            ).log
        except UnreadableFile:
            disk.bad_places = disk.bad_places if generation == 1 else []
            continue
        disk.bad_places = []
        assert {number: everything(again, number) for number in LEVELS} == before
        fill(again, 1, b"new")
        before = contents(again)
        again.wal.close()
    assert not (tmp_path / QUARANTINE).exists()


def test_a_table_outlives_the_pages_beside_it_that_cannot_be_read(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """A segment was distrusted for the page behind it, its table deleted, and one without records
    filed."""
    log = start(tmp_path, levels=LEVELS, segment_bytes=RING_BYTES).log
    fill(log, 120)
    before = contents(log)
    log.wal.close()
    tables = {path.name: path.stat().st_ino for path in tmp_path.glob("*.index")}
    assert len(tables) > 2
    disk.bad_places = [(path.with_suffix(".wal").name, 0, 1 << 40) for path in map(Path, tables)]
    again, recovered = start(
        tmp_path, generation=1, disk=disk, levels=LEVELS, segment_bytes=RING_BYTES
    )
    assert recovered.damaged == []
    assert {name: (tmp_path / name).stat().st_ino for name in tables} == tables
    with pytest.raises(DamagedFrame, match="cannot be read now"):
        read(again, 2)
    fill(again, 1, b"new")
    disk.bad_places = []
    after = {number: everything(again, number) for number in LEVELS}
    assert all(after[number].items() > before[number].items() for number in LEVELS)


def test_a_page_behind_all_that_a_dead_shard_had_written_is_not_missed(
    tmp_path: Path, disk: FailingDisk
) -> None:
    log = start(tmp_path, levels=LEVELS, segment_bytes=RING_BYTES).log
    fill(log, 3)
    append(log, 2, batch(b"in the ring"))
    written, before = log.words[WORD_WRITTEN], contents(log)[2]
    log.wal.close()
    segment = log.wal.segments[-1]
    at = -(-(written - segment.start) // PAGE_BYTES) * PAGE_BYTES
    disk.bad_places = [(segment.path.name, at, at + 1)]
    with pytest.raises(UnreadableFile, match=str(segment.path)):
        start(tmp_path, generation=1, disk=disk, levels=LEVELS, segment_bytes=RING_BYTES)
    again = start(
        tmp_path,
        generation=2,
        disk=disk,
        levels=LEVELS,
        segment_bytes=RING_BYTES,
        memory=log.memory,
    ).log
    assert contents(again)[2] == before | {len(before): b"in the ring"}


def test_a_start_waits_for_a_page_that_can_be_read_a_moment_later(
    tmp_path: Path, disk: FailingDisk
) -> None:
    before = filled(tmp_path)
    paths = sorted(tmp_path.glob("*.wal"))
    disk.bad_places = all_of_them(paths)
    times = iter(range(0, 60_000, WAIT_MS // 4))

    def pause() -> int:
        now_ms = next(times)
        if now_ms >= WAIT_MS // 2:
            disk.bad_places = []
        return now_ms

    again, recovered = start(tmp_path, generation=1, disk=disk, levels=LEVELS, pause=pause)
    assert contents(again) == before
    assert recovered.damaged == []


@pytest.mark.parametrize("name", [FILE_NAME, BOOT_FILE])
def test_a_small_file_that_cannot_be_read_fails_the_start_and_stays(
    tmp_path: Path, name: str
) -> None:
    """Without a checkpoint it would forget sealed ends, and without its boot cut what it keeps."""
    before = filled(tmp_path)
    whole = (tmp_path / name).rename(tmp_path / "elsewhere")
    (tmp_path / name).mkdir()  # Which is no file.
    with pytest.raises(OSError, match=name):
        start(tmp_path, generation=1, levels=LEVELS)
    (tmp_path / name).rmdir()
    whole.rename(tmp_path / name)
    assert contents(start(tmp_path, generation=2, levels=LEVELS).log) == before


def everything(log: Log, number: int) -> dict[int, bytes]:
    """All that can be read, past what is damaged, and past what cannot be read for a while."""
    values: dict[int, bytes] = {}
    offset = 0
    while offset < high_watermark(log, number):
        try:
            found = read(log, number, offset)
        except DamagedFrame:
            wait(log, RETRY_MS)
            continue
        values |= found
        offset = max(found, default=offset) + 1
    return values


def test_a_checkpoint_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    before = filled(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"damage")
    again = start(tmp_path, generation=1, levels=LEVELS).log
    assert contents(again) == before
    assert any(str(tmp_path / FILE_NAME) in notice for notice in again.notices)


def inodes(log: Log) -> list[int]:
    return [segment.path.stat().st_ino for segment in log.wal.segments]


@pytest.mark.parametrize("knows_boot", [True, False])
@pytest.mark.parametrize("fails_again", [False, True])
def test_a_start_rewrites_frames_that_a_failed_sync_left_in_doubt(
    tmp_path: Path, disk: FailingDisk, fails_again: bool, knows_boot: bool
) -> None:
    """Else its sync of the same file would succeed, of pages that the kernel has given up."""
    log = start(tmp_path, disk=disk, levels=LEVELS).log
    fill(log, 30)
    synced = log.words[WORD_SYNCED]
    fill(log, 20, b"late", syncs=False)
    disk.fail("sync")
    log.want_sync()
    log.push_sync()
    before, files = contents(log), inodes(log)
    in_doubt = [segment.end > synced for segment in log.wal.segments]
    assert True in in_doubt
    log.wal.close()
    if not knows_boot:
        (tmp_path / BOOT_FILE).unlink()  # The disk was full when it was to be written.
    generation = 1
    if fails_again:
        again = start(tmp_path, generation=generation, disk=disk, levels=LEVELS).log
        assert again.failed is not None
        again.wal.close()
        generation += 1
    disk.heal()
    again = start(tmp_path, generation=generation, disk=disk, levels=LEVELS).log
    changed = [a != b for a, b in zip(files, inodes(again), strict=False)]
    assert changed == in_doubt
    found = contents(again)
    assert {number: found[number] for number in (2, 3)} == {
        2: before[2],
        3: before[3] | {30 + i: b"late" + b"%d" % i * 60 for i in range(20)},
    }
    calls = disk.calls.get("create", 0)
    again.close()
    start(tmp_path, generation=generation + 1, disk=disk, levels=LEVELS).log.close()
    assert disk.calls["create"] <= calls + 4  # The next file and spares: nothing is in doubt.


class UnsyncedNames(FailingDisk):
    """Its directory cannot be synced after a segment has got its name."""

    def rename(self, path: Path, target: Path) -> None:
        """See Disk."""
        self.fail_behind_rename = target.suffix == ".wal"
        super().rename(path, target)


def test_a_start_that_cannot_sync_a_fresh_files_name_serves_that_file(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """Its descriptor stayed open for as long as the shard lived."""
    log = start(tmp_path, disk=disk, levels=LEVELS).log
    fill(log, 20, syncs=False)
    disk.fail("sync", 1)
    log.want_sync()
    log.push_sync()
    before = contents(log)
    log.wal.close()
    again = start(tmp_path, generation=1, disk=UnsyncedNames(OsDisk()), levels=LEVELS).log
    assert again.failed is not None
    assert contents(again)[2] == before[2]
    for segment in again.wal.segments:
        assert os.fstat(segment.fd).st_ino == segment.path.stat().st_ino
    again.wal.close()
    assert open_files(tmp_path) == []


def open_files(directory: Path) -> list[str]:
    """The segments of a directory that are open; also those that have lost their name."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    targets = [str(link.readlink()) for link in links if link.is_symlink()]
    return [target for target in targets if target.startswith(f"{directory}/") and ".wal" in target]


def test_a_start_after_a_failed_sync_leaves_a_file_that_cannot_be_read_whole_in_its_place(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """The page cache does not have the page, so a fresh file would not either; each start failed,
    and the log stayed read-only."""
    log = start(tmp_path, disk=disk, levels=LEVELS, segment_bytes=RING_BYTES).log
    fill(log, 150, syncs=False)
    disk.fail("sync")
    log.want_sync()
    log.push_sync()
    disk.heal()
    before, files = contents(log), inodes(log)
    in_doubt = [segment.end > log.words[WORD_SYNCED] for segment in log.wal.segments]
    bad = len(in_doubt) - 2
    assert in_doubt[bad]
    segment = log.wal.segments[bad]
    log.wal.close()
    disk.bad_places = [(segment.path.name, PAGE_BYTES, 2 * PAGE_BYTES)]
    again = start(tmp_path, generation=1, disk=disk, levels=LEVELS, segment_bytes=RING_BYTES).log
    assert again.failed is None
    assert not (tmp_path / NOTE).exists()
    changed = [a != b for a, b in zip(files, inodes(again), strict=False)]
    assert changed == [*in_doubt[:bad], False, *in_doubt[bad + 1 :]]
    lost = before[2].items() - everything(again, 2).items()
    assert 0 < len(lost) <= PAGE_BYTES // 128 + 2
    fill(again, 3, b"new")
