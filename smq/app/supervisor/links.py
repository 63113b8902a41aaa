"""No link may stand in a data directory: one from elsewhere would lead to any of the user's files.

What is written through it overwrites them, what the filer has is published over HTTP, and what the
sealer sweeps is deleted. Nor may a pipe, which holds for ever who opens it, a socket or a device. A
start looks for them before it opens the first file, and nothing that runs makes one. The operator's
own files beside ours may be links, and so may the path of the data directory; a filer in another
place is the operator's.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from smq.app.supervisor.modes import FILES, LEFT, OWN
from smq.sealer.lake.catalog import FILE_NAME as CATALOG

# What our names begin with: temporary files and SQLite's journals add to them.
_OURS = (
    *("meta.json", "clock.json", "lock", "supervisor.lock", "restoring", "filer"),
    *(*OWN, *LEFT, *FILES, CATALOG),
)


def refuse_links(data_dir: Path) -> None:
    """Raises SystemExit that names a link in what is ours, or what is no file, and OSError."""
    for entry in _others(data_dir):
        if not entry.is_symlink():
            raise SystemExit(f"smq: {entry.path} is neither a file nor a directory; remove it")
        raise SystemExit(
            f"smq: {entry.path} is a link, which may lead anywhere; put there what it points to, "
            "or mount that (`mount --bind`); a filer may lie elsewhere (`filer.root`)"
        )


def _others(data_dir: Path) -> Iterator[os.DirEntry[str]]:
    """What is neither a file nor a directory."""
    left = [each for each in _entries(data_dir) if each.name.startswith(_OURS)]
    while left:
        entry = left.pop()
        if entry.is_dir(follow_symlinks=False):
            left.extend(_entries(entry.path))
        elif not entry.is_file(follow_symlinks=False):
            yield entry


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except PermissionError:
        if os.access(directory, os.X_OK):  # What it has could be opened by name.
            raise
        return []  # A volume's lost+found.
