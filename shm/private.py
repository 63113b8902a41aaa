"""Directories that are this user's alone to write: what lies there is code that we run."""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = 0
LOCK = ".lock"
VERSIONS_KEPT = 3  # Somebody may go back to the version before, or use two checkouts.
UNUSED_S = 7 * 86_400
_VERSION = re.compile("[0-9a-f]{16}")


def is_private(directory: Path) -> bool:
    """Whether only this user and root can put files into a directory, or another in its place.

    `directory` exists and is resolved. Anybody may add to a sticky directory, such as /tmp, but
    replaces nobody else's entries there.
    """
    if sys.platform == "win32":
        return True
    return not _may_others_write(directory.stat()) and _stays_ours(directory)


def _stays_ours(directory: Path) -> bool:
    """Whether only this user and root can replace a directory and what is ours in it."""
    if sys.platform == "win32":  # A user's temporary directory is the user's.
        return True
    ours = {ROOT, os.getuid()}
    for each in (directory, *directory.parents):
        status = each.stat()
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        if status.st_uid not in ours or (_may_others_write(status) and not is_sticky):
            return False
    return True


def _may_others_write(status: os.stat_result) -> bool:
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def private_cache(name: Path) -> Path:
    """A directory for what can be made again, of this name; it exists, and `is_private`.

    Raises OSError if there can be none.
    """
    for root in _roots():
        directory = root / "smq" / name
        try:
            _make_private(directory)
            directory = directory.resolve()
            if is_private(directory) and os.access(directory, os.W_OK):
                return directory
        except OSError:
            continue
    raise OSError(
        "there is no directory for compiled kernels that this user, and no other, can write: set "
        "XDG_CACHE_HOME"
    )


def private_version(kind: str, version: str) -> Path:
    """A `private_cache` of what was made of one version of the sources, 16 hexadecimal digits.

    It counts as used now. While it is empty, other versions go that nobody has used for a week, but
    for the newest ones. Who runs one all the same has it mapped, or makes it again: so the clock of
    the file system may decide. Raises OSError.
    """
    directory = private_cache(Path(kind) / version)
    with suppress(OSError):
        os.utime(directory)
        if not any(directory.iterdir()):
            _remove_unused(directory)
    return directory


def _remove_unused(used_now: Path) -> None:
    """Remove the versions beside one that is used now, if they are old. Raises OSError."""
    others = [
        (each.stat().st_mtime, each)
        for each in used_now.parent.iterdir()
        if _VERSION.fullmatch(each.name) and each != used_now and not each.is_symlink()
    ]
    newest_first = sorted(others, reverse=True)
    unused_since = used_now.stat().st_mtime - UNUSED_S
    for used, each in newest_first[VERSIONS_KEPT - 1 :]:
        if used <= unused_since:
            shutil.rmtree(each, ignore_errors=True)


def _roots() -> Iterator[Path]:
    if home := os.environ.get("XDG_CACHE_HOME"):
        yield Path(home)
    else:
        with suppress(RuntimeError):  # A user without a name, whom nobody told of a home.
            yield Path.home() / ".cache"
    # On Windows each user has a temporary directory of its own, and there are no user ids.
    user = os.getuid() if sys.platform != "win32" else ""
    yield Path(tempfile.gettempdir()) / f"smq-cache-{user}"


def _make_private(directory: Path) -> None:
    """Create it and its parents, mode 0700 whatever the umask is; nothing in another's directory.

    Root may have the home of the user who became root. Raises OSError.
    """
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    if missing and not _stays_ours(missing[-1].parent.resolve()):
        raise PermissionError(f"others may replace {missing[-1].parent}")
    for each in reversed(missing):
        each.mkdir(exist_ok=True, mode=0o700)


def open_lock(directory: Path) -> int:
    """A file of a directory to lock, which its owner alone can open. Raises OSError.

    Whoever may read a directory could lock the directory itself, and hold the lock for ever.
    """
    lock = directory / LOCK
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def set_by_default(variable: str, value: str) -> None:
    """Set a variable of the environment, unless the user has."""
    os.environ.setdefault(variable, value)
