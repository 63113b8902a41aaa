"""An index filled by the kernels, and its plain twin."""

import numpy as np
from hypothesis import strategies as st

from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.base.words import P_LAST_ENTRY, P_LOG_END, P_NUMBER
from shm.kernels.log.index import append_entry
from shm.kernels.twin.log import PlainEntry, PlainIndex
from shm.segment import LogMemory

SLOTS = 3

appends = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(1, 4), st.integers(-1, 50)), max_size=150
)
"""Slot, records and largest timestamp of one batch after another."""


class Index:
    """Entries of three partitions, 64 at a time; a frame takes 128 bytes, a batch 70."""

    def __init__(self, batches: list[tuple[int, int, int]]) -> None:
        self.log = LogMemory.in_process(0, 8192, 4096, SLOTS)
        self.log.partitions[:, P_LAST_ENTRY] = -1
        self.log.partitions[:, P_NUMBER] = range(30, 30 + SLOTS)
        capacity = self.log.layout.index_capacity
        self.links = np.full((LINK_COLUMNS, capacity), -1, np.int64)
        self.twin = PlainIndex(capacity)
        self.end = 0
        for slot, count, timestamp in batches:
            self.append(slot, count, timestamp)

    def append(self, slot: int, count: int, timestamp: int) -> None:
        base_offset = int(self.log.partitions[slot, P_LOG_END])
        shape = (count, 70, 0)
        append_entry(self.log.memory, self.links, slot, self.end, base_offset, timestamp, shape)
        entry = PlainEntry(slot, self.end, base_offset, count, 70, timestamp)
        self.twin.entries.append(entry)
        self.log.partitions[slot, P_LOG_END] += count
        self.end += 128
