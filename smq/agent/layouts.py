"""SeaweedMQ's names for partitions: ranges of slots on a ring.

    P partitions: each is ⌊2520 / P⌋ slots wide, and the last one takes the rest
    unix_time_ns: when this layout began, that is, when the topic got P partitions

A topic that gets more partitions begins a new layout. Partitions are only added, so range n of an
older layout is still partition n.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

RING_SIZE = 2520  # Divisible by 1 to 10.
PARTITIONS_MAX = RING_SIZE  # Else a range would have no slot.
CURRENT = 0  # In place of a time: the layout of now.


class RingLayout(NamedTuple):
    """How many partitions a topic had from a time on."""

    began_ns: int
    partition_count: int


class RingRange(NamedTuple):
    """A partition as SeaweedMQ's messages have it. `stop` is exclusive."""

    ring_size: int
    start: int
    stop: int
    began_ns: int


class UnknownRange(Exception):
    """There is no partition of this range."""


def range_of(layout: RingLayout, partition: int) -> RingRange:
    """The range of a partition in a layout that has it."""
    count = layout.partition_count
    assert 0 <= partition < count <= PARTITIONS_MAX
    width = RING_SIZE // count
    is_last = partition == count - 1
    start = partition * width
    return RingRange(RING_SIZE, start, RING_SIZE if is_last else start + width, layout.began_ns)


def ranges_of(layout: RingLayout) -> Iterator[RingRange]:
    """The ranges of all partitions, in order."""
    return (range_of(layout, partition) for partition in range(layout.partition_count))


def partition_of(layouts: Sequence[RingLayout], wanted: RingRange) -> int:
    """The partition of a range in one of a topic's layouts, the newest of which is the last.

    Raises UnknownRange with a sentence.
    """
    layout = _layout_of(layouts, wanted.began_ns)
    if wanted.ring_size != RING_SIZE:
        raise UnknownRange(f"its ring has {wanted.ring_size} slots; there are {RING_SIZE}")
    width = RING_SIZE // layout.partition_count
    partition = min(max(wanted.start, 0) // width, layout.partition_count - 1)
    found = range_of(layout, partition)
    if (found.start, found.stop) != (wanted.start, wanted.stop):
        raise UnknownRange(
            f"none of the {layout.partition_count} partitions has slots {wanted.start} to "
            f"{wanted.stop}; look the topic up again"
        )
    return partition


def _layout_of(layouts: Sequence[RingLayout], began_ns: int) -> RingLayout:
    if began_ns == CURRENT:
        return layouts[-1]
    for layout in layouts:
        if layout.began_ns == began_ns:
            return layout
    raise UnknownRange(f"the topic has no layout of {began_ns}; look it up again")
