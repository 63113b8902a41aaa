"""A log that a newer SMQ has written to: its frames stay, and none is taken for a torn end."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    FRAME_ALIGNMENT_BYTES,
    FRAME_KIND_ADOPTION,
    FRAME_KIND_BATCH,
    FRAME_KIND_PADDING,
    FRAME_KIND_SKIPPABLE,
)
from shm.kernels.log.recover import S_AT, S_KIND, SCAN_COLUMNS
from smq.log.files.checkpoint import FILE_NAME, VERSION as CHECKPOINT_VERSION
from smq.log.files.disk import OsDisk
from smq.log.files.filed_index import VERSION, FiledIndex
from smq.log.files.newer import UnknownFrames, refuse_newer
from smq.log.files.segment_files import QUARANTINE
from smq.model.errors import MadeByNewer, StoreError
from smq.testing.disk import PAGE_BYTES, FailingDisk
from tests.log.files.test_checkpoint import newer
from tests.log.logs import (
    BOOT,
    OTHER_BOOT,
    RING_BYTES,
    SEGMENT_BYTES,
    append_unknown,
    memory_of,
    start,
    turn,
)
from tests.log.test_recovery import LEVELS, contents, fill

SKIPPABLE, ANOTHER, REQUIRED = FRAME_KIND_SKIPPABLE | 17, FRAME_KIND_SKIPPABLE | 18, 17
CONTENT = b"what a later version says" * 11

Frames = dict[int, bytes]


def newer_log(
    directory: Path, kind: int, rounds: int = 8, segment_bytes: int = SEGMENT_BYTES
) -> tuple[dict[int, dict[int, bytes]], Frames]:
    """A log of frames that are known and of some that are not: between others, and last."""
    log = start(directory, levels=LEVELS, segment_bytes=segment_bytes).log
    frames = dict[int, bytes]()
    for i in range(rounds):
        fill(log, 4, b"%d " % i)
        frames.update([append_unknown(log, kind, CONTENT[i:])])
        assert turn(log)
    before = contents(log)
    log.wal.close()
    return before, frames


def in_wal(directory: Path, position: int, length: int) -> bytes:
    """Bytes of the log, from its files."""
    for path in directory.glob("*.wal"):
        start_at, data = int(path.stem), path.read_bytes()
        if start_at <= position < start_at + len(data):
            return data[position - start_at :][:length]
    raise AssertionError(f"no segment has position {position}")


def assert_kept(directory: Path, frames: Frames) -> None:
    for position, data in frames.items():
        assert in_wal(directory, position, len(data)) == data


def snapshot(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def without_tables(directory: Path) -> None:
    for path in directory.glob("*.index"):
        path.unlink()


def with_newer_tables(directory: Path) -> None:
    """Whole, but of the next version."""
    for path in directory.glob("*.index"):
        data = path.read_bytes()
        path.write_bytes(data[:7] + bytes([VERSION + 1]) + data[8:])


def test_frames_of_a_later_generation_than_the_start_takes_are_refused_and_stay(
    tmp_path: Path,
) -> None:
    """meta.json was lost, or is an older backup's: the shard ended at each start with a trace."""
    log = start(tmp_path, generation=7, levels=LEVELS).log
    fill(log, 30)
    before = contents(log)
    log.wal.close()
    without_tables(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    files = {path: path.read_bytes() for path in tmp_path.glob("*.wal")}
    for generation in (-1, 6):
        with pytest.raises(StoreError, match="its frames are of up to generation 7, and by meta"):
            refuse_newer(tmp_path, OsDisk(), generation)
        with pytest.raises(StoreError, match="nothing was changed"):
            start(tmp_path, generation=generation, levels=LEVELS)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.wal")} == files
    refuse_newer(tmp_path, OsDisk(), 7)
    assert contents(start(tmp_path, generation=7, levels=LEVELS).log) == before


# --- kinds that may be skipped -------------------------------------------------------------------


@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
@pytest.mark.parametrize("change", [None, without_tables, with_newer_tables])
def test_frames_that_may_be_skipped_stay_byte_for_byte_and_the_others_are_served(
    tmp_path: Path, boot: bytes, change: Callable[[Path], None] | None
) -> None:
    before, frames = newer_log(tmp_path, SKIPPABLE)
    if change:
        change(tmp_path)
    refuse_newer(tmp_path, OsDisk(), 9)
    for generation in (1, 2, 3):
        log, recovered = start(tmp_path, generation=generation, boot=boot, levels=LEVELS)
        assert recovered.damaged == []
        assert contents(log) == before
        assert_kept(tmp_path, frames)
        fill(log, 2, b"new")
        before = contents(log)
        log.wal.close()
    assert not (tmp_path / QUARANTINE).exists()
    for path in tmp_path.glob("*.index"):
        assert FiledIndex.load(path, int(path.stem)) is not None


def test_unknown_frame_kinds_are_reported_once_a_start(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    assert log.notices == []
    for kind in (SKIPPABLE, ANOTHER, SKIPPABLE):
        append_unknown(log, kind, CONTENT)
        fill(log, 1)
    log.wal.close()
    log = start(tmp_path, generation=1, levels=LEVELS).log
    (notice,) = log.notices
    assert notice == (
        f"{tmp_path}: 3 frames of kinds that this SMQ does not know (0x40000011, 0x40000012) are "
        "kept but ignored: a newer SMQ wrote them"
    )


def test_those_that_only_the_ring_has_are_written(tmp_path: Path) -> None:
    """The shard died, the supervisor did not: what it had appended is still to be written."""
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 2)
    frames = dict([append_unknown(log, SKIPPABLE, CONTENT)])
    again, recovered = start(tmp_path, generation=1, memory=log.memory, levels=LEVELS)
    assert recovered.from_ring_bytes == sum(map(len, frames.values()))
    assert_kept(tmp_path, frames)
    assert len(again.notices) == 1


def test_a_segment_with_them_is_freed_when_all_its_batches_are_sealed(tmp_path: Path) -> None:
    _, frames = newer_log(tmp_path, SKIPPABLE)
    log = start(tmp_path, generation=1, levels=LEVELS).log
    for number in LEVELS:
        log.sealing.advance(number, 32, 1)
    log.checkpoint()
    assert len(log.wal.segments) == 1
    fill(log, 3, b"new")
    before = contents(log)
    log.wal.close()
    log = start(tmp_path, generation=2, levels=LEVELS).log
    assert contents(log) == before
    assert min(frames) < log.wal.segments[0].start


def test_a_repair_writes_them_again_as_they_were(tmp_path: Path) -> None:
    disk = FailingDisk(OsDisk())
    log = start(tmp_path, disk=disk, levels=LEVELS).log
    fill(log, 3)
    frames = dict([append_unknown(log, SKIPPABLE, CONTENT)])
    assert turn(log)
    frames.update([append_unknown(log, SKIPPABLE, CONTENT[1:])])
    disk.fail("write")
    assert not log.write()
    disk.heal()
    log.tend()
    assert log.failed is None
    before = contents(log)
    assert_kept(tmp_path, frames)
    log.wal.close()
    assert contents(start(tmp_path, generation=1, levels=LEVELS).log) == before


def test_around_a_page_that_is_lost_they_are_kept(tmp_path: Path) -> None:
    _, frames = newer_log(tmp_path, SKIPPABLE, 20, RING_BYTES)
    disk = FailingDisk(OsDisk())
    without_tables(tmp_path)
    first = min(tmp_path.glob("*.wal"))
    disk.bad_places.append((first.name, PAGE_BYTES, 2 * PAGE_BYTES))
    refuse_newer(tmp_path, disk, 9)
    with first.open("r+b") as file:  # A copy has zeros for what is lost.
        file.seek(PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    memory = memory_of(segment_bytes=RING_BYTES)
    _, recovered = start(
        tmp_path,
        generation=1,
        memory=memory,
        levels=LEVELS,
        segment_bytes=RING_BYTES,
        boot=OTHER_BOOT,
    )
    assert recovered.damaged
    outside = {
        at: data
        for at, data in frames.items()
        if at + len(data) <= PAGE_BYTES or at >= 2 * PAGE_BYTES
    }
    assert 0 < len(outside) < len(frames)
    assert_kept(tmp_path, outside)


def test_one_that_is_torn_at_the_end_is_cut_and_one_that_is_damaged_is_passed_over(
    tmp_path: Path,
) -> None:
    before, frames = newer_log(tmp_path, REQUIRED, 1, RING_BYTES)
    ((position, data),) = frames.items()
    path = tmp_path / f"{0:020d}.wal"
    whole = path.read_bytes()
    torn = position + FRAME_ALIGNMENT_BYTES
    path.write_bytes(whole[:torn] + bytes(len(whole) - torn))
    memory = memory_of(segment_bytes=RING_BYTES)
    log, recovered = start(
        tmp_path, generation=1, memory=memory, levels=LEVELS, segment_bytes=RING_BYTES
    )
    assert recovered.damaged == []
    assert contents(log) == before
    assert len(data) > 2 * FRAME_ALIGNMENT_BYTES


def test_a_flipped_bit_in_one_between_others_is_damage_and_costs_nothing_else(
    tmp_path: Path,
) -> None:
    before, frames = newer_log(tmp_path, SKIPPABLE)
    without_tables(tmp_path)
    position = min(frames)
    path = tmp_path / f"{position - position % SEGMENT_BYTES:020d}.wal"
    flipped = bytearray(path.read_bytes())
    flipped[position % SEGMENT_BYTES + 100] ^= 1
    path.write_bytes(flipped)
    log, recovered = start(tmp_path, generation=1, levels=LEVELS)
    assert len(recovered.damaged) == 1
    assert contents(log) == before


# --- kinds that must be known --------------------------------------------------------------------


@pytest.mark.parametrize("change", [without_tables, with_newer_tables])
def test_a_kind_that_must_be_known_stops_the_start_and_no_frame_is_cut(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    _, frames = newer_log(tmp_path, REQUIRED)
    change(tmp_path)
    before = snapshot(tmp_path)
    said = f"{tmp_path}: made by a newer SMQ: the frame at position {min(frames)} is of kind 17,"
    with pytest.raises(MadeByNewer, match=said):
        refuse_newer(tmp_path, OsDisk(), 9)
    assert snapshot(tmp_path) == before
    with pytest.raises(MadeByNewer, match=said):
        start(tmp_path, generation=1, levels=LEVELS)
    after = snapshot(tmp_path)
    assert {name: after[name] for name in before if name.endswith("wal")} == {
        name: data for name, data in before.items() if name.endswith("wal")
    }
    assert after[FILE_NAME] == before[FILE_NAME]


@pytest.mark.parametrize("is_written", [False, True])
def test_it_stops_the_start_also_as_the_last_frame_and_when_only_the_ring_has_it(
    tmp_path: Path, *, is_written: bool
) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 3)
    position, _ = append_unknown(log, REQUIRED, b"")
    if is_written:
        assert turn(log)
        with pytest.raises(MadeByNewer):
            refuse_newer(tmp_path, OsDisk(), 9)
    memory = None if is_written else log.memory
    with pytest.raises(MadeByNewer, match=f"at position {position} is of kind 17"):
        start(tmp_path, generation=1, levels=LEVELS, memory=memory)


def test_it_stops_the_start_also_behind_a_torn_end(tmp_path: Path) -> None:
    """After a power loss a start would cut there; the newer SMQ is to say what that costs."""
    _, frames = newer_log(tmp_path, REQUIRED, 1, RING_BYTES)
    path = tmp_path / f"{0:020d}.wal"
    assert min(frames) > FRAME_ALIGNMENT_BYTES
    data = bytearray(path.read_bytes())
    data[:FRAME_ALIGNMENT_BYTES] = bytes(FRAME_ALIGNMENT_BYTES)
    path.write_bytes(data)
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(MadeByNewer):
        refuse_newer(tmp_path, OsDisk(), 9)


def test_a_table_of_our_version_says_that_there_is_none(tmp_path: Path) -> None:
    """So a start need not read all of a long log twice."""
    _, frames = newer_log(tmp_path, REQUIRED)
    for path in tmp_path.glob("*.wal"):
        if not path.with_suffix(".index").exists():
            path.unlink()
    assert any(path.with_suffix(".wal").exists() for path in tmp_path.glob("*.index"))
    assert frames
    refuse_newer(tmp_path, OsDisk(), 9)


def test_a_newer_checkpoint_stops_the_start_before_anything_is_written(tmp_path: Path) -> None:
    newer_log(tmp_path, SKIPPABLE)
    path = tmp_path / FILE_NAME
    path.write_bytes(newer(path.read_bytes(), CHECKPOINT_VERSION + 1))
    (tmp_path / "left over.new").write_bytes(b"")
    before = snapshot(tmp_path)
    with pytest.raises(MadeByNewer, match=f"its format is {CHECKPOINT_VERSION + 1}"):
        refuse_newer(tmp_path, OsDisk(), 9)
    with pytest.raises(MadeByNewer, match=f"its format is {CHECKPOINT_VERSION + 1}"):
        start(tmp_path, generation=1, levels=LEVELS)
    assert snapshot(tmp_path) == before


def test_a_directory_without_a_log_is_not_refused(tmp_path: Path) -> None:
    refuse_newer(tmp_path / "absent", OsDisk(), 9)
    (tmp_path / f"{0:020d}.wal").touch()
    (tmp_path / "other.wal").write_bytes(b"somebody's")
    refuse_newer(tmp_path, OsDisk(), 9)
    disk = FailingDisk(OsDisk())
    disk.fail("open")
    refuse_newer(tmp_path, disk, 9)


# --- counting ------------------------------------------------------------------------------------


def rows_of(*kinds: int) -> np.ndarray:
    rows = np.zeros((len(kinds), SCAN_COLUMNS), np.int64)
    rows[:, S_KIND], rows[:, S_AT] = kinds, 64 * np.arange(len(kinds))
    return rows


def test_only_unknown_kinds_are_counted_and_the_first_that_must_be_known_is_named() -> None:
    unknown = UnknownFrames(Path("x"))
    unknown.meet(rows_of(FRAME_KIND_BATCH, FRAME_KIND_PADDING, FRAME_KIND_ADOPTION), 0)
    assert unknown.notices() == []
    unknown.meet(rows_of(SKIPPABLE, FRAME_KIND_BATCH, SKIPPABLE), 0)
    assert dict(unknown.counts) == {SKIPPABLE: 2}
    with pytest.raises(MadeByNewer, match="position 1064 is of kind 4,"):
        unknown.meet(rows_of(SKIPPABLE, 4, 5), 1000)


def test_a_log_without_them_has_nothing_to_tell(tmp_path: Path) -> None:
    log = start(tmp_path, levels=LEVELS).log
    fill(log, 20)
    log.wal.close()
    assert start(tmp_path, generation=1, levels=LEVELS).log.notices == []
