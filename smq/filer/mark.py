"""The mark of a local filer: a file that names the cluster, for clients on the same host.

A path alone proves nothing: another host or container may have the same path. A client that reads
the cluster's id there writes to the directory that the broker reads, whatever is mounted between.
"""

from pathlib import Path

from smq.filer.directories import make_directory

NAME = ".cluster"  # No key starts with a dot.


def mark(root: Path, cluster_id: str) -> None:
    """Mark this directory with the cluster's id. Raises OSError."""
    if not is_marked(root, cluster_id):
        make_directory(root)
        unfinished = root / f"{NAME}.new"
        unfinished.write_text(cluster_id)
        unfinished.replace(root / NAME)


def is_marked(root: Path, cluster_id: str) -> bool:
    """Whether the directory has the mark of this cluster; False if it cannot be read."""
    try:
        return (root / NAME).read_text() == cluster_id
    except OSError:
        return False
