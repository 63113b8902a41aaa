"""Whose directory a local filer is: a file that names the cluster, for clients on the same host.

A path alone proves nothing: another host, or another container, may have one that is called the
same. Who reads the cluster's id there writes where the broker reads, over whatever is mounted.
"""

from pathlib import Path

NAME = ".cluster"  # No key starts with a dot.


def mark(root: Path, cluster_id: str) -> None:
    """Say whose directory this is. Raises OSError."""
    if not is_marked(root, cluster_id):
        root.mkdir(parents=True, exist_ok=True)
        unfinished = root / f"{NAME}.new"
        unfinished.write_text(cluster_id)
        unfinished.replace(root / NAME)


def is_marked(root: Path, cluster_id: str) -> bool:
    """Whether this is the directory of the cluster's filer, as far as we may look."""
    try:
        return (root / NAME).read_text() == cluster_id
    except OSError:
        return False
