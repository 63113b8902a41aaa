"""The time line of a data directory goes on over restarts, whatever the wall clock says."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.app.process.clock import monotonic_ms, replaced
from smq.app.supervisor.timeline import FILE, KeptMoment, Moment, continued, keep, read, resume

DAY_MS, YEAR_MS = 86_400_000, 365 * 86_400_000
WALL_MS = 1_700_000_000_000
KEPT = KeptMoment(WALL_MS + 5, Moment("boot", 1000, WALL_MS))


class SetClocks:
    """The system's clocks, as a test sets them."""

    def __init__(self) -> None:
        self.wall_ms, self.monotonic_ms = WALL_MS, 50_000


@pytest.fixture
def clocks() -> Iterator[SetClocks]:
    clocks = SetClocks()
    wall, monotonic = lambda: clocks.wall_ms * 1_000_000, lambda: clocks.monotonic_ms * 1_000_000
    with replaced(wall, monotonic):
        yield clocks


@pytest.mark.parametrize("step_ms", [-YEAR_MS, -1000, 0, 1000, 8 * DAY_MS, YEAR_MS])
def test_within_a_boot_the_wall_clock_does_not_matter(step_ms: int) -> None:
    """Data fault 2: a restart 8 days ahead forgot ids."""
    assert continued(KEPT, Moment("boot", 3000, WALL_MS + step_ms)) == KEPT.now_ms + 2000


def test_after_another_boot_it_goes_on_as_the_wall_clock_did() -> None:
    assert continued(KEPT, Moment("next", 7, WALL_MS + DAY_MS)) == KEPT.now_ms + DAY_MS


@pytest.mark.parametrize("boot", ["boot", "next"])
def test_it_never_goes_back(boot: str) -> None:
    assert continued(KEPT, Moment(boot, 7, WALL_MS - YEAR_MS)) == KEPT.now_ms


def test_without_a_file_it_begins_at_wall_time() -> None:
    assert continued(None, Moment("boot", 7, WALL_MS)) == WALL_MS


@pytest.mark.parametrize("name", ["now_ms", "monotonic_ms", "wall_ms"])
@pytest.mark.parametrize("number", ["1e400", "9" * 40, "-" + "9" * 40, "1.5", "true", '"1"'])
def test_a_file_with_numbers_that_are_no_times_counts_as_none(
    tmp_path: Path, clocks: SetClocks, name: str, number: str
) -> None:
    """Door fault 2: a clock from elsewhere ended the start, or hung it, with a number that neither
    shared memory nor the store can hold."""
    keep(tmp_path)
    path = tmp_path / FILE
    assert read(tmp_path) is not None
    path.write_text(re.sub(rf'("{name}": )\d+', rf"\g<1>{number}", path.read_text()))
    assert number in path.read_text()
    assert read(tmp_path) is None
    path.write_text("[" * 100_000)
    resume(tmp_path)
    assert monotonic_ms() == clocks.wall_ms


def test_a_directory_continues_its_time_line(tmp_path: Path, clocks: SetClocks) -> None:
    resume(tmp_path)
    assert monotonic_ms() == WALL_MS
    clocks.wall_ms += YEAR_MS
    clocks.monotonic_ms += 300
    assert monotonic_ms() == WALL_MS + 300
    keep(tmp_path)
    clocks.monotonic_ms += 200
    resume(tmp_path)
    assert monotonic_ms() == WALL_MS + 500


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"now_ms": null}', "\0" * 90])
def test_a_damaged_file_counts_as_none(tmp_path: Path, clocks: SetClocks, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert read(tmp_path) is None
    resume(tmp_path)
    assert monotonic_ms() == clocks.wall_ms


def test_the_time_line_is_kept_durably(
    tmp_path: Path, clocks: SetClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 2: a power loss right after a start left an empty file, and a new line began."""
    synced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        sync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    for step in (resume, keep):
        synced.clear()
        step(tmp_path)
        assert synced == [FILE + ".new", tmp_path.name]
