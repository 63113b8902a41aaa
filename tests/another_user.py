"""What another user of this host can read: only root can become one, and CI is root."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shm.forks import forked

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")


def result_as(user: int, act: Callable[[], Any]) -> Any:
    """What a function returns, as JSON has it, or the words of its exception, as another user."""
    receives, sends = os.pipe()

    def run() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        try:
            result = act()
        except Exception as error:  # noqa: BLE001  (told to the parent)
            result = f"{type(error).__name__}: {error}"
        os.write(sends, json.dumps(result).encode())

    try:
        with forked(run):
            pass
        return json.loads(os.read(receives, 65_536))
    finally:
        os.close(receives)
        os.close(sends)


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
