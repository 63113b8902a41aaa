"""The keys that a pass of compaction has seen, in memory that may outlive the worker.

A worker may be killed at any moment and another one continues: what it has noted of a segment twice
is noted once. A slot whose key was half written is lost until the pass ends, no more: it belongs to
no other key (shm.kernels.record.last_of_key).
"""

from typing import Protocol

import numpy as np
import pyarrow as pa

from shm.arrow import read_only
from shm.kernels.record.last_of_key import S_NEXT, SLOT_WORDS, find_last, note_keys

SLOTS_MAX = 1 << 24  # 24 bytes each. A segment with more keys gets a table of its own.
SLOTS_MIN = 1 << 10
FILL_PERCENT = 70


class PassMemory(Protocol):
    """Where a pass is, and its table."""

    def begin(self, slots: int) -> None:
        """Start with an empty table of this many slots, and no place."""

    def table(self, slots: int) -> np.ndarray:
        """The table: uint64 [slots, SLOT_WORDS]."""

    def note(self, place: bytes) -> None:
        """Remember where the pass is."""

    def place(self) -> bytes:
        """What was noted last; empty: nothing."""

    def clear(self) -> None:
        """The pass is over: give the memory back."""


class OwnMemory:
    """Memory of this process."""

    def __init__(self) -> None:
        self._table, self._place = np.zeros((0, SLOT_WORDS), np.uint64), b""

    def begin(self, slots: int) -> None:
        """See PassMemory."""
        self._table, self._place = np.zeros((slots, SLOT_WORDS), np.uint64), b""

    def table(self, slots: int) -> np.ndarray:
        """See PassMemory."""
        assert len(self._table) == slots
        return self._table

    def note(self, place: bytes) -> None:
        """See PassMemory."""
        self._place = place

    def place(self) -> bytes:
        """See PassMemory."""
        return self._place

    def clear(self) -> None:
        """See PassMemory."""
        self._table, self._place = np.zeros((0, SLOT_WORDS), np.uint64), b""


def slots_for(records: int, first_records: int, slots_max: int = SLOTS_MAX) -> int:
    """How many slots fit `records`, within bounds, and `first_records` in any case."""
    slots = SLOTS_MIN
    wanted = max(min(records, slots_max * FILL_PERCENT // 100), first_records)
    while slots * FILL_PERCENT // 100 < wanted:
        slots *= 2
    return slots


class KeyTable:
    """The last offset of each key. `secret`: 16 bytes that no client knows."""

    def __init__(self, table: np.ndarray, secret: bytes, *, is_empty: bool = True) -> None:
        self._table = table
        self._secret = np.frombuffer(secret, np.uint64)
        # Reading a fresh table would take its memory.
        self.keys = 0 if is_empty else int(np.count_nonzero(table[:, S_NEXT]))
        self._room = len(table) * FILL_PERCENT // 100

    def has_room(self, records: int) -> bool:
        """Whether this many records fit, whatever keys they have."""
        return self.keys + records <= self._room

    def note(self, rows: pa.Table) -> None:
        """Remember rows with the columns _offset and _key."""
        self.keys += note_keys(self._table, self._secret, *_places(rows))

    def last(self, rows: pa.Table) -> np.ndarray:
        """Which of these rows are the last of their key."""
        out = np.empty(rows.num_rows, np.bool_)
        find_last(self._table, self._secret, *_places(rows), out)
        return out


def _places(rows: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The bytes of keys, where each begins and how long it is (-1: null), and the offsets."""
    keys = rows["_key"].combine_chunks()
    _, offsets_buffer, data = keys.buffers()
    ends = np.frombuffer(offsets_buffer or b"", np.int32)[keys.offset :][: len(keys) + 1]
    lengths = np.diff(ends).astype(np.int64) if len(keys) else np.zeros(0, np.int64)
    lengths[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    bytes_ = read_only(data) if data is not None and data.size else read_only(b"")
    offsets = rows["_offset"].to_numpy()
    offsets.flags.writeable = False  # As kernels are compiled for it; PyArrow's may be either.
    return bytes_, ends[: len(keys)].astype(np.int64), lengths, offsets
