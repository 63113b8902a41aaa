"""What the filer's disk keeps for the log: an upload that would take of it is refused."""

import os
from pathlib import Path
from typing import NamedTuple

from smq.model.errors import Full


class Reserve(NamedTuple):
    """A disk, by a directory on it that need not exist yet, and how many bytes must be left."""

    directory: Path
    byte_count: int

    def check(self, name: str, byte_count: int) -> None:
        """Raises Full, with a sentence about `name`, when there is no room for so much more."""
        free_bytes = self._free_bytes()
        if free_bytes - byte_count < self.byte_count:
            raise Full(
                name,
                f"the filer's disk has {free_bytes} bytes left, of which the log keeps "
                f"{self.byte_count} (filer.reserve.bytes)",
            )

    def _free_bytes(self) -> int:
        directory = self.directory
        while not directory.exists():  # The first upload makes it.
            directory = directory.parent
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize
