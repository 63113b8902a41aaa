"""A payload's name says how long it is and what its CRC-32C is: what else comes is not stored."""

from smq.filer.content import crc_of
from smq.filer.store import Data
from smq.model.references import PREFIX, NotAHandle, directory_of, facts_of_id


class NotThePayload(ValueError):
    """The bytes are not those that the name promises. Says why."""


class Promise:
    """What the key of a payload says, beside the bytes that come."""

    def __init__(self, key: str) -> None:
        parts = key.removeprefix(PREFIX).split("/")
        if not key.startswith(PREFIX) or len(parts) != 3:
            raise NotAHandle(f"a payload's name is {directory_of('<namespace>', '<topic>')}<id>")
        self._length, self._crc32c = facts_of_id(parts[2])
        self._came_bytes = self._came_crc32c = 0

    def take(self, piece: Data) -> None:
        """Look at the next bytes. Raises NotThePayload: they are too many."""
        self._came_bytes += len(piece)
        if self._came_bytes > self._length:
            raise NotThePayload(f"more bytes come than the {self._length} that its name says")
        self._came_crc32c = crc_of(piece, self._came_crc32c)

    def check(self) -> None:
        """All bytes have come. Raises NotThePayload."""
        if self._came_bytes != self._length:
            raise NotThePayload(f"{self._came_bytes} bytes came; its name says {self._length}")
        if self._came_crc32c != self._crc32c:
            raise NotThePayload(
                f"the CRC-32C of what came is {self._came_crc32c:08x}; "
                f"its name says {self._crc32c:08x}"
            )
