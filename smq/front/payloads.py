"""Checks an uploaded payload against the length and CRC-32C in its name."""

from smq.filer.content import crc_of
from smq.filer.store import Data
from smq.model.references import PREFIX, NotAHandle, directory_of, facts_of_id


class NotThePayload(ValueError):
    """The bytes do not match the name. The message says why."""


class Promise:
    """The length and CRC-32C in a payload's key, checked against the bytes received."""

    def __init__(self, key: str) -> None:
        parts = key.removeprefix(PREFIX).split("/")
        if not key.startswith(PREFIX) or len(parts) != 3:
            raise NotAHandle(f"a payload's name is {directory_of('<namespace>', '<topic>')}<id>")
        self._length, self._crc32c = facts_of_id(parts[2])
        self._came_bytes = self._came_crc32c = 0

    def take(self, piece: Data) -> None:
        """Add the next bytes. Raises NotThePayload if there are too many."""
        self._came_bytes += len(piece)
        if self._came_bytes > self._length:
            raise NotThePayload(f"more bytes than the {self._length} in its name")
        self._came_crc32c = crc_of(piece, self._came_crc32c)

    def check(self) -> None:
        """Check all bytes at the end. Raises NotThePayload."""
        if self._came_bytes != self._length:
            raise NotThePayload(
                f"the body has {self._came_bytes} bytes; its name says {self._length}"
            )
        if self._came_crc32c != self._crc32c:
            raise NotThePayload(
                f"the CRC-32C of the body is {self._came_crc32c:08x}; "
                f"its name says {self._crc32c:08x}"
            )
