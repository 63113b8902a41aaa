"""The audit log's files: lines stay whole, files bounded, and a full disk is said once."""

import json
import os
import stat
from pathlib import Path

import pytest

from smq.app.process.audit_files import (
    ACCESSES,
    ACTS,
    NOWHERE,
    AuditFiles,
    FileLimits,
    RotatedFile,
)

SMALL = FileLimits(bytes_max=1000, files_max=3)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def files(tmp_path: Path, said: list[str]) -> AuditFiles:
    return AuditFiles(tmp_path / "audit", SMALL, said.append)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_acts_and_accesses_have_a_file_each_for_the_broker_alone(
    tmp_path: Path, files: AuditFiles
) -> None:
    umask = os.umask(0)
    try:
        files.tell_acts(["a", "b"])
        files.tell_accesses(["c"])
    finally:
        os.umask(umask)
    files.close()
    directory = tmp_path / "audit"
    assert lines(directory / ACTS) == ["a", "b"]
    assert lines(directory / ACCESSES) == ["c"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {0o600}


def test_the_name_of_a_new_directory_is_on_disk_before_an_act_is_done(
    tmp_path: Path, files: AuditFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss took the directory, with the lines of acts that had been done."""
    fsync, synced = os.fsync, list[Path]()

    def sync(fd: int) -> None:
        fsync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())

    monkeypatch.setattr(os, "fsync", sync)
    files.tell_acts(["a"])
    files.close()
    assert {tmp_path, tmp_path / "audit"} <= {*synced}


def test_rotation_bounds_the_files_and_keeps_the_newest_lines(
    tmp_path: Path, files: AuditFiles, said: list[str]
) -> None:
    written = [f"{number:099}" for number in range(100)]
    for first in range(0, 100, 7):
        files.tell_acts(written[first : first + 7])
    files.close()
    directory = tmp_path / "audit"
    names = [f"{ACTS}.2", f"{ACTS}.1", ACTS]
    assert sorted(each.name for each in directory.iterdir()) == sorted(names)
    assert all((directory / name).stat().st_size <= SMALL.bytes_max for name in names)
    kept = [line for name in names for line in lines(directory / name)]
    assert kept == written[-len(kept) :]
    assert len(kept) > 20
    assert said == []


def test_files_beyond_a_lowered_limit_go(tmp_path: Path, said: list[str]) -> None:
    for limits in (FileLimits(1000, 6), FileLimits(1000, 1)):
        files = RotatedFile(tmp_path / ACTS, limits, said.append)
        files.write(["x" * 99] * 100)
        files.close()
        assert len(list(tmp_path.iterdir())) == limits.files_max


def test_the_next_broker_appends(tmp_path: Path, files: AuditFiles, said: list[str]) -> None:
    files.tell_acts(["a"])
    files.close()
    again = AuditFiles(tmp_path / "audit", SMALL, said.append)
    again.tell_acts(["b"])
    again.close()
    assert lines(tmp_path / "audit" / ACTS) == ["a", "b"]


def test_a_line_that_a_death_has_cut_does_not_touch_the_next(
    tmp_path: Path, files: AuditFiles
) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / ACTS).write_text('whole\n{"event": "ac')
    files.tell_acts(["next"])
    files.close()
    assert lines(tmp_path / "audit" / ACTS) == ["whole", '{"event": "ac', "next"]


@pytest.mark.parametrize("takes_away", [Path.unlink, lambda path: path.rename(f"{path}.mine")])
def test_a_file_that_is_taken_away_is_made_again(
    tmp_path: Path, files: AuditFiles, takes_away: "object"
) -> None:
    files.tell_acts(["a"])
    takes_away(tmp_path / "audit" / ACTS)  # type: ignore[operator]
    files.tell_acts(["b"])
    files.close()
    assert lines(tmp_path / "audit" / ACTS) == ["b"]


def test_a_link_is_not_followed(tmp_path: Path, files: AuditFiles, said: list[str]) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "other").write_text("mine\n")
    (tmp_path / "audit" / ACTS).symlink_to(tmp_path / "other")
    files.tell_acts(["a"])
    assert (tmp_path / "other").read_text() == "mine\n"
    assert len(said) == 1


def test_a_full_disk_is_said_once_and_the_missing_lines_are_counted(
    tmp_path: Path, files: AuditFiles, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files.tell_acts(["a"])
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
        files.tell_acts(["b" * 20, "c" * 20])
        files.tell_acts(["d" * 20])
    assert len(said) == 1
    assert "cannot be written" in said[0]
    files.tell_acts(["e"])
    files.close()
    first, lost, last = lines(tmp_path / "audit" / ACTS)
    assert (first, last) == ("a", "e")
    assert json.loads(lost)["event"] == "lost"
    assert json.loads(lost)["count"] == 3
    assert len(said) == 1


def test_a_directory_that_cannot_be_made_raises_nothing(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "file").write_text("")
    files = AuditFiles(tmp_path / "file" / "audit", SMALL, said.append)
    files.tell_acts(["a"])
    files.tell_accesses(["b"])
    files.close()
    assert len(said) == 2


def test_without_an_audit_log_nothing_is_written(tmp_path: Path) -> None:
    NOWHERE.tell_acts(["a"])
    NOWHERE.tell_accesses(["a"])
    assert list(tmp_path.iterdir()) == []
