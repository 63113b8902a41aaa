"""Links and copies of files, durable."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.backup import files


def test_a_link_is_the_same_file_and_another_file_system_has_none(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"content")
    assert files.link(source, tmp_path / "deep" / "b")
    assert (tmp_path / "deep" / "b").samefile(source)
    with TemporaryDirectory(dir="/dev/shm") as other:
        assert not files.link(source, Path(other, "b"))
        files.copy(source, Path(other, "b"))
        assert Path(other, "b").read_bytes() == b"content"


@pytest.mark.parametrize("shares", [True, False])
def test_a_copy_has_the_first_bytes_and_zeros_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, shares: bool
) -> None:
    if not shares:

        def refuse(*_: object) -> int:
            raise OSError(errno.EXDEV, "two file systems")

        monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(files, "PIECE_BYTES", 1000)
    source = tmp_path / "a"
    source.write_bytes(os.urandom(10_000))
    files.copy(source, tmp_path / "b", 4321)
    assert (tmp_path / "b").read_bytes() == source.read_bytes()[:4321] + bytes(10_000 - 4321)
    with pytest.raises(FileExistsError):
        files.copy(source, tmp_path / "b")


def test_write_refuses_to_replace_a_file(tmp_path: Path) -> None:
    files.write(tmp_path / "deep" / "a", b"x")
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "deep" / "a", b"y")
    files.sync_directories(tmp_path)
