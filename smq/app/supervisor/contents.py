"""What a data directory from elsewhere must not have, or it is not served.

    a link      may lead to any of the user's files: a write through it overwrites them, the filer
                would publish them over HTTP, and a sweep of the sealer would delete them
    a pipe      blocks the process that opens it; a socket or a device is no file either
    a size      a file that is read whole takes its size in memory, and a sparse file of some
                kilobytes may have any size

A start checks this before it opens the first file; the broker itself creates none of these. The
operator's own files beside ours may be links, and so may the path of the data directory. A filer
elsewhere is the operator's and is not checked.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from smq.app.supervisor.modes import FILES, LEFT, OWN
from smq.model.setting import INT64_MAX
from smq.sealer.lake.catalog import FILE_NAME as CATALOG

MiB = 1024 * 1024
# What our names begin with: temporary files and SQLite's journals add to them.
_OURS = (
    *("meta.json", "clock.json", "lock", "supervisor.lock", "restoring", "filer"),
    *(*OWN, *LEFT, *FILES, CATALOG),
)
# What is read whole, by its path in the directory, and more bytes than it ever has.
_READ_WHOLE = (
    (re.compile(r"[^/]*\.json|decoys\.secret|logs/\d+/(boot|sync-failed)|filer/\.cluster"), MiB),
    (re.compile(r"logs/\d+/checkpoint.*"), 512 * MiB),
    (re.compile(r"tables/.*|filer/topics/.*/_last_checkpoint"), 64 * MiB),
)


def check_contents(data_dir: Path) -> None:
    """Raises SystemExit with a sentence that names what must not be there, and OSError."""
    for entry in _all(data_dir):
        if entry.is_symlink():
            raise SystemExit(
                f"smq: {entry.path} is a link, which may lead anywhere; put there what it points "
                "to, or mount that (`mount --bind`); a filer may lie elsewhere (`filer.root`)"
            )
        if not entry.is_file(follow_symlinks=False):
            raise SystemExit(f"smq: {entry.path} is neither a file nor a directory; remove it")
        place = entry.path[len(str(data_dir)) + 1 :]
        most = bytes_max_of(place)
        if most < INT64_MAX and (size := entry.stat(follow_symlinks=False).st_size) > most:
            raise SystemExit(
                f"smq: {entry.path} has {size} bytes, and SMQ writes at most {most} there; restore "
                "it from a backup"
            )


def bytes_max_of(place: str) -> int:
    """How many bytes a start allows a file to have, by its path in the directory."""
    found = (bytes_max for name, bytes_max in _READ_WHOLE if name.fullmatch(place))
    return next(found, INT64_MAX)


def _all(data_dir: Path) -> Iterator[os.DirEntry[str]]:
    """All but the directories."""
    left = [each for each in _entries(data_dir) if each.name.startswith(_OURS)]
    while left:
        entry = left.pop()
        if entry.is_dir(follow_symlinks=False):
            left.extend(_entries(entry.path))
        else:
            yield entry


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except PermissionError:
        if os.access(directory, os.X_OK):  # What it has could be opened by name.
            raise
        return []  # A volume's lost+found.
