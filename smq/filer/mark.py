"""The mark of a local filer: a file that names the cluster, for clients on the same host.

A path alone proves nothing: another host or container may have the same path. A client that reads
the cluster's id there writes to the directory that the broker reads, whatever is mounted between.
"""

import stat
from pathlib import Path

from smq.filer.directories import make_directory

NAME = ".cluster"  # No key starts with a dot.


def mark(root: Path, cluster_id: str) -> None:
    """Mark this directory with the cluster's id, as open as the umask says. Raises OSError."""
    make_directory(root)
    unfinished = root / f"{NAME}.new"
    unfinished.unlink(missing_ok=True)
    unfinished.write_text(cluster_id)
    unfinished.replace(root / NAME)


def directory_mode(root: Path) -> int:
    """The mode of directories in this filer: as open as its broker has made the mark.

    A program that uploads may have a umask that opens what it makes to every user of the host.
    """
    try:
        readable = stat.S_IMODE((root / NAME).stat().st_mode)
    except OSError:  # No broker's.
        return 0o777
    return readable | (readable & 0o444) >> 2  # Who may read may enter.


def file_mode(root: Path) -> int:
    """The mode of files in this filer, likewise."""
    return directory_mode(root) & 0o666


def is_marked(root: Path, cluster_id: str) -> bool:
    """Whether the directory has the mark of this cluster; False if it cannot be read."""
    try:
        return (root / NAME).read_text() == cluster_id
    except OSError:
        return False
