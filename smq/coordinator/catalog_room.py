"""The room of the published catalog, which topics and settings share.

A catalog that is larger than its shared memory ends each start of the coordinator. So both count
their bytes here, and grow only as far as there is room.
"""

HEAD_BYTES_MAX = 1024  # The line of the cluster, without the settings in it.


class CatalogRoom:
    """The bytes that are taken. `bytes_max`: how many there are."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = HEAD_BYTES_MAX

    @property
    def left(self) -> int:
        """Bytes that nobody has taken; below 0: an earlier version took too many."""
        return self._bytes_max - self._bytes

    def has(self, grown: int) -> bool:
        """Whether something may grow by so many bytes. It may always shrink."""
        return grown <= max(0, self.left)

    def count(self, grown: int) -> None:
        """Something has grown by so many bytes, or shrunk."""
        self._bytes += grown
