"""The footers of Parquet files in the filer: a few kilobytes from the end of each."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from smq.filer.store import Store
from smq.model.errors import StoreError
from smq.model.segments import Segment

TAIL_BYTES = 64 * 1024  # Holds the footer of nearly all segments: one request.


def footer(store: Store, segment: Segment) -> pq.FileMetaData:
    """The footer of a segment's file. Raises StoreError."""
    path = store.local_path(segment.path)
    try:
        if path is not None:
            return pq.read_metadata(path)
        return pq.read_metadata(pa.PythonFile(_Ranges(store, segment), mode="r"))
    except (OSError, pa.ArrowException) as reason:
        raise StoreError(segment.path, f"its footer cannot be read: {reason}") from reason


class _Ranges(io.RawIOBase):
    """An object as a file whose end is in memory."""

    def __init__(self, store: Store, segment: Segment) -> None:
        self._store, self._segment, self._at = store, segment, 0
        self._tail_at = max(0, segment.bytes - TAIL_BYTES)
        self._tail = store.get(segment.path, self._tail_at)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io.RawIOBase."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._segment.bytes}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """See io.RawIOBase."""
        return self._at

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def seekable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """See io.RawIOBase."""
        end = self._segment.bytes if size is None or size < 0 else self._at + size
        start, self._at = self._at, min(end, self._segment.bytes)
        if start >= self._tail_at:
            return self._tail[start - self._tail_at : end - self._tail_at]
        return self._store.get(self._segment.path, start, end - start)
