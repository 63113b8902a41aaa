"""Offsets by time: the first batch of a partition that reaches a timestamp."""

from typing import NamedTuple

import numpy as np

from shm.kernels.fetch import find_timestamp
from shm.kernels.index import find_entry, first_entry
from shm.kernels.words import FRAME_HEADER_BYTES
from smq.log.reading import ReadableLog


class BatchPlace(NamedTuple):
    """Where a batch lies."""

    position: int
    length: int


class _Hit(NamedTuple):
    base_offset: int
    place: BatchPlace


def first_batch_at(
    log: ReadableLog, number: int, offset: int, limit: int, timestamp: int
) -> BatchPlace | None:
    """The first batch in ring or WAL, of records in [offset, limit), whose largest timestamp is at
    least `timestamp`; None: there is none. Walks one index entry a batch."""
    while True:
        offset = log.lookup.behind_damage(number, offset)
        hit = _in_tables(log, number, offset, limit, timestamp)
        if hit is None:
            hit = _in_window(log, number, offset, limit, timestamp)
        if hit is None:
            return None
        if log.lookup.behind_damage(number, hit.base_offset) == hit.base_offset:
            return hit.place
        offset = hit.base_offset


def _in_tables(
    log: ReadableLog, number: int, offset: int, limit: int, timestamp: int
) -> _Hit | None:
    for index in log.filed_indexes(number):
        mine = index.of_partition(number)
        ends = mine["base_offset"] + mine["record_count"]
        wanted = (mine["max_timestamp"] >= timestamp) & (ends > offset)
        wanted &= mine["base_offset"] < limit
        hits = np.flatnonzero(wanted)
        if len(hits):
            hit = mine[hits[0]]
            place = BatchPlace(int(hit["position"]) + FRAME_HEADER_BYTES, int(hit["bytes"]))
            return _Hit(int(hit["base_offset"]), place)
    return None


def _in_window(
    log: ReadableLog, number: int, offset: int, limit: int, timestamp: int
) -> _Hit | None:
    slot = log.partitions.slots[number]
    memory, links = log.memory.memory, log.links
    entry = int(find_entry(memory, links, slot, offset))
    if entry < 0:
        entry = int(first_entry(memory, links, slot))
    hit = int(find_timestamp(memory, links, entry, limit, timestamp))
    if hit < 0:
        return None
    i = hit % log.memory.layout.index_capacity
    column = log.memory.column
    place = BatchPlace(int(column("position")[i]) + FRAME_HEADER_BYTES, int(column("bytes")[i]))
    return _Hit(int(column("base_offset")[i]), place)
