"""A raw segment: record batches as they were sent, and an index behind them.

    0                    body_bytes               -32
    +--------------------+-----------------------+------------------------------------------+
    | batches            | index, a row a batch  | body bytes, rows, CRC-32C of index, magic |
    +--------------------+-----------------------+------------------------------------------+

Little endian. The index tells the batches apart even where one of them cannot be read. The CRC of
the whole file is in the manifest; the one here lets a file be read without it.
"""

import struct

import numpy as np

from shm.arrow import read_only
from shm.kernels.crc32c import crc32c
from shm.kernels.records import B_AT, B_BASE_OFFSET, B_END, B_LAST_OFFSET, B_MAX_TIMESTAMP
from smq.sealer.decode import Piece

MAGIC = b"SMQ\x01raw\n"
INDEX_DTYPE = np.dtype(
    [
        ("base_offset", "<i8"),
        ("last_offset", "<i8"),
        ("max_timestamp", "<i8"),
        ("at", "<i8"),
        ("end", "<i8"),
    ]
)
_FOOTER = struct.Struct("<qqQ8s")
FOOTER_BYTES = _FOOTER.size


class NotRaw(ValueError):
    """These bytes are no raw segment, or not a whole one."""


def index_of(facts: np.ndarray, shift: int) -> np.ndarray:
    """The rows of batches with these facts, `shift` bytes further on."""
    index = np.empty(facts.shape[1], INDEX_DTYPE)
    index["base_offset"] = facts[B_BASE_OFFSET]
    index["last_offset"] = facts[B_LAST_OFFSET]
    index["max_timestamp"] = facts[B_MAX_TIMESTAMP]
    index["at"] = facts[B_AT] + shift
    index["end"] = facts[B_END] + shift
    return index


class RawWriter:
    """Collects the batches of one raw segment."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._index: list[np.ndarray] = []

    @property
    def size(self) -> int:
        """About how many bytes the segment has."""
        return len(self._body)

    def add(self, piece: Piece) -> None:
        """Add the batches of a piece, whatever its kind."""
        self._index.append(index_of(piece.facts, len(self._body) - int(piece.facts[B_AT, 0])))
        self._body += piece.batches

    def finish(self, end_offset: int) -> bytes:
        """The segment's bytes."""
        index = np.concatenate(self._index)
        assert int(index["last_offset"][-1]) < end_offset
        rows = index.tobytes()
        check = int(crc32c(read_only(rows), 0, len(rows)))
        return bytes(self._body) + rows + _FOOTER.pack(len(self._body), len(index), check, MAGIC)


class RawSegment:
    """Reads a raw segment. Raises NotRaw when the bytes are none."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        view = data.data
        if len(view) < FOOTER_BYTES or bytes(view[-len(MAGIC) :]) != MAGIC:
            raise NotRaw("it does not end as a raw segment does")
        body_bytes, count, check, _ = _FOOTER.unpack(view[-FOOTER_BYTES:])
        rows_end = len(view) - FOOTER_BYTES
        if body_bytes < 0 or body_bytes + count * INDEX_DTYPE.itemsize != rows_end:
            raise NotRaw("its length is not what its footer says")
        if int(crc32c(data, body_bytes, rows_end)) != check:
            raise NotRaw("its index has a wrong CRC")
        self.index = data[body_bytes:rows_end].view(INDEX_DTYPE)
        self.body = view[:body_bytes]

    def find_time(self, timestamp: int) -> tuple[int, int] | None:
        """The first batch that may hold a record of this time or later: base offset, its newest.

        A raw segment's records cannot all be read, so that the answer is as exact as the batch.
        """
        late = self.index["max_timestamp"] >= timestamp
        if not late.any():
            return None
        row = self.index[int(late.argmax())]
        return int(row["base_offset"]), int(row["max_timestamp"])
