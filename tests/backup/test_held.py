"""A folder that somebody changes while it is read."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.backup.held import HeldFolder, NotWhole
from tests.another_user import needs_root

ANOTHER = 65534
NAME = "filer/docs/a"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldFolder]:
    (tmp_path / "s/filer/docs").mkdir(parents=True)
    (tmp_path / "s" / NAME).write_bytes(b"content")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a").write_bytes(b"secret")
    with HeldFolder(tmp_path / "s") as each:
        yield each


def is_refused(held: HeldFolder, target: Path) -> bool:
    """Whether a file can neither be read nor be linked."""
    with pytest.raises(NotWhole, match=f"{NAME} is neither a file nor a directory"):
        held.read(held.path / NAME, 7)
    with suppress(NotWhole):
        assert not held.link(held.path / NAME, target)
    return not target.exists() and not target.is_symlink()


def test_a_file_is_read_and_linked(held: HeldFolder, tmp_path: Path) -> None:
    assert held.read(held.path / NAME, 7) == b"content"
    assert held.link(held.path / NAME, tmp_path / "deep" / "b")
    assert (tmp_path / "deep" / "b").samefile(held.path / NAME)
    with TemporaryDirectory(dir="/dev/shm") as other:
        assert not held.link(held.path / NAME, Path(other, "b"))
    with pytest.raises(FileNotFoundError):
        held.read(held.path / "filer" / "none", 7)


def test_a_file_is_read_as_far_as_its_bound(held: HeldFolder) -> None:
    with pytest.raises(NotWhole, match=f"{NAME} has over 6 bytes: .* is not restored"):
        held.read(held.path / NAME, 6)


def test_a_relative_path_names_the_same_files(
    held: HeldFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with HeldFolder(Path("s")) as relative:
        assert (
            relative.read(Path("s") / NAME, 7) == relative.read(held.path / NAME, 7) == b"content"
        )


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a directory"])
def test_a_link_a_pipe_and_a_directory_are_refused(
    held: HeldFolder, tmp_path: Path, kind: str
) -> None:
    path = held.path / NAME
    path.unlink()
    match kind:
        case "a link":
            path.symlink_to(tmp_path / "mine/a")
        case "a pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()
    assert is_refused(held, tmp_path / "b")


def test_a_link_in_place_of_a_directory_is_not_followed(held: HeldFolder, tmp_path: Path) -> None:
    (held.path / "filer/docs").rename(tmp_path / "before")
    (held.path / "filer/docs").symlink_to(tmp_path / "mine")
    assert is_refused(held, tmp_path / "b")


def test_the_folder_is_the_one_that_was_opened(held: HeldFolder, tmp_path: Path) -> None:
    held.path.rename(tmp_path / "before")
    (tmp_path / "mine/a").rename(tmp_path / "mine/meta.json")
    held.path.symlink_to(tmp_path / "mine")
    with pytest.raises(FileNotFoundError):
        held.read(held.path / "meta.json", 7)
    assert held.read(held.path / NAME, 7) == b"content"


def test_reading_leaves_no_descriptor(held: HeldFolder, tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    held.read(held.path / NAME, 7)
    (held.path / NAME).unlink()
    (held.path / NAME).mkdir()
    assert is_refused(held, tmp_path / "b")
    assert len([*Path("/proc/self/fd").iterdir()]) <= before  # Garbage may have gone.


def test_a_file_in_place_of_the_folder_is_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("none", "file"):
        with pytest.raises(NotWhole, match="there is no directory"):
            HeldFolder(tmp_path / name)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o646])
def test_a_file_that_others_may_write_is_no_link_of_ours(
    held: HeldFolder, tmp_path: Path, mode: int
) -> None:
    (held.path / NAME).chmod(mode)
    is_safe = not mode & 0o022
    assert held.link(held.path / NAME, tmp_path / "b") == (tmp_path / "b").exists() == is_safe


@needs_root
def test_a_file_of_another_user_is_no_link_of_ours(held: HeldFolder, tmp_path: Path) -> None:
    """Its owner wrote into a served directory, after a restore by root."""
    os.chown(held.path / NAME, ANOTHER, ANOTHER)
    assert not held.link(held.path / NAME, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert held.read(held.path / NAME, 7) == b"content"
