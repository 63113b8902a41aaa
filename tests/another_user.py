"""What another user of this host can read: only root can become one, and CI is root."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.shm.forks import forked

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


def read_by(user: int, group: int, below: Path) -> set[str]:
    """The files that another user can read."""
    found = Path(tempfile.mkdtemp(prefix="smq-"))
    found.chmod(0o777)

    def look() -> None:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        names = []
        for directory, _, files in os.walk(below):
            for name in files:
                path = Path(directory) / name
                if os.access(path, os.R_OK):
                    names.append(str(path.relative_to(below)))
        (found / "names").write_text("\n".join(names))

    try:
        with forked(look):
            pass
        return set((found / "names").read_text().split())
    finally:
        (found / "names").unlink(missing_ok=True)
        found.rmdir()
