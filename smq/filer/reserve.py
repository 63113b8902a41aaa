"""Free disk space that is reserved for the log: uploads that would use it are refused."""

import os
from pathlib import Path
from typing import NamedTuple

from smq.model.errors import Full


class Reserve(NamedTuple):
    """The reserve on the disk of a directory, which need not exist yet."""

    directory: Path
    byte_count: int

    def check(self, name: str, byte_count: int) -> None:
        """Raises Full about `name` when this many more bytes would use the reserve."""
        free_bytes = self._free_bytes()
        if free_bytes - byte_count < self.byte_count:
            raise Full(
                name,
                f"the filer's disk has {free_bytes} bytes left, of which the log reserves "
                f"{self.byte_count} (filer.reserve.bytes)",
            )

    def _free_bytes(self) -> int:
        directory = self.directory
        while not directory.exists():  # The first upload creates it.
            directory = directory.parent
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize
