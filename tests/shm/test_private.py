"""Directories that others cannot write; another user takes part where the tests run as root."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from shm.private import LOCK, UNUSED_S, is_private, open_lock, private_cache, private_version
from tests.another_user import needs_root, result_as

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of another user")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "cache"
    made.mkdir(parents=True)
    (tmp_path / "home").chmod(0o755)
    made.chmod(0o700)
    return made


def test_a_directory_that_only_we_can_write_is_private(ours: Path) -> None:
    assert is_private(ours)
    ours.parent.chmod(0o1777)
    assert is_private(ours), "others may add to a sticky directory, and replace nothing of ours"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_may_write_is_not_private(ours: Path, mode: int) -> None:
    ours.chmod(mode)
    assert not is_private(ours)


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_directory_that_others_may_replace_is_not_private(ours: Path, mode: int) -> None:
    ours.parent.chmod(mode)
    assert not is_private(ours)


@as_root
def test_a_directory_of_another_user_is_not_private(ours: Path) -> None:
    os.chown(ours, NOBODY, NOBODY)
    assert not is_private(ours)
    os.chown(ours, 0, 0)
    os.chown(ours.parent, NOBODY, NOBODY)
    assert not is_private(ours)


@as_root
def test_root_makes_nothing_in_the_home_of_the_user_who_became_root(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(ours))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    os.chown(ours, NOBODY, NOBODY)
    assert private_cache(Path("linked")) == tmp_path / "smq-cache-0" / "smq" / "linked"
    assert not list(ours.iterdir())


def test_a_user_without_a_home_has_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert private_cache(Path("linked")).is_relative_to(tmp_path)


def test_a_new_version_removes_old_ones_that_were_unused_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def are_there() -> list[bool]:
        return [each.exists() for each in versions]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    foreign = private_cache(Path("linked", "mine"))
    versions = [private_version("linked", digit * 16) for digit in "1234"]
    for each, days in ((foreign, 99), *zip(versions, (6, 30, 60, 90), strict=True)):
        (each / "file").touch()
        then = each.stat().st_mtime - days * 86_400
        os.utime(each, (then, then))
    private_version("linked", "4" * 16)  # It is there: nothing is made, and it is used again.
    assert are_there() == [True] * 4
    private_version("linked", "5" * 16)
    assert are_there() == [True, False, False, True]
    assert foreign.exists()


def test_versions_that_somebody_used_within_a_week_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    versions = [private_version("kernels", digit * 16) for digit in "12345"]
    for each in versions:
        then = each.stat().st_mtime - UNUSED_S + 3600
        os.utime(each, (then, then))
    private_version("kernels", "6" * 16)
    assert all(each.exists() for each in versions)


@needs_root
def test_a_lock_is_opened_by_its_owner_alone() -> None:
    home = Path(tempfile.mkdtemp(prefix="smq-"))
    home.chmod(0o755)
    os.close(open_lock(home))
    try:
        for act in (lambda: open_lock(home), lambda: (home / LOCK).open().close()):
            assert "PermissionError" in result_as(4321, act)
    finally:
        shutil.rmtree(home)
