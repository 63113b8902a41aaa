"""Offsets by time: the first batch of a partition that reaches a timestamp."""

from typing import NamedTuple

from shm.kernels.base.entries import LINK_NEXT
from shm.kernels.base.words import FRAME_HEADER_BYTES
from shm.kernels.log.index import find_entry, find_timestamp, first_entry
from shm.kernels.record.records import INT64_MIN
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
    least `timestamp`; None: there is none. Takes a few steps per full segment with records of the
    partition, plus the logarithm of the window, however many batches there are."""
    while offset < limit:
        offset = log.lookup.behind_damage(number, offset)
        hit = _in_tables(log, number, offset, limit, timestamp)
        if hit is None:
            hit = _in_window(log, number, offset, limit, timestamp)
        if hit is None:
            return None
        if log.lookup.behind_damage(number, hit.base_offset) == hit.base_offset:
            return hit.place
        offset = hit.base_offset
    return None


def largest_time(
    log: ReadableLog, number: int, offset: int, limit: int, at_most: int
) -> int | None:
    """The largest timestamp of the batches in ring or WAL, of records in [offset, limit).

    `at_most` is the partition's largest ever, and nearly always it. Else it is found in as many
    looks as a timestamp has bits. None: there is no batch.
    """
    if first_batch_at(log, number, offset, limit, at_most) is not None:
        return at_most
    if first_batch_at(log, number, offset, limit, INT64_MIN) is None:
        return None
    low, high = INT64_MIN, at_most  # Some batch reaches `low`, none `high`.
    while high - low > 1:
        middle = (low + high) // 2
        if first_batch_at(log, number, offset, limit, middle) is None:
            high = middle
        else:
            low = middle
    return low


def _in_tables(
    log: ReadableLog, number: int, offset: int, limit: int, timestamp: int
) -> _Hit | None:
    for index in log.filed_indexes(number):
        hit = index.first_reaching(number, offset, limit, timestamp)
        if hit is not None:
            place = BatchPlace(int(hit["position"]) + FRAME_HEADER_BYTES, int(hit["bytes"]))
            return _Hit(int(hit["base_offset"]), place)
    return None


def _in_window(
    log: ReadableLog, number: int, offset: int, limit: int, timestamp: int
) -> _Hit | None:
    slot = log.partitions.slots[number]
    memory, links, column = log.memory.memory, log.links, log.memory.column
    capacity = log.memory.layout.index_capacity
    entry = int(find_entry(memory, links, slot, offset))
    if entry < 0:
        entry = int(first_entry(memory, links, slot))
    elif int(column("base_offset")[i := entry % capacity] + column("record_count")[i]) <= offset:
        entry = int(links[LINK_NEXT, i])  # That batch lies before `offset`.
    if entry < 0:
        return None
    hit = int(find_timestamp(memory, links, slot, entry, limit, timestamp))
    if hit < 0:
        return None
    i = hit % capacity
    place = BatchPlace(int(column("position")[i]) + FRAME_HEADER_BYTES, int(column("bytes")[i]))
    return _Hit(int(column("base_offset")[i]), place)
