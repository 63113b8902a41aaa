"""Questions by which a partition moves from the log of one shard to that of another.

    coordinator ──ClosePartition──▶ source     takes no more appends; all that it has is on disk
    coordinator ──AdoptPartition──▶ target ──ReadState──▶ source     the state, in pages
    the leader  ──ReadTail──▶ the shard of a former log

An order is repeated until it is answered, and a repeated one gets the same answer. `attempt`
numbers the tries to move a partition: an order of an earlier one fails (docs/leadership.md). They
are in no table of smq.wire.internal.messages: no shard answers them, and nothing asks for a move.
"""

from typing import NamedTuple

from smq.model.frozen import frozen
from smq.wire.internal.form import Question


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of the first record in it."""

    epoch: int
    start: int


@frozen
class ClosedAt:
    """The source takes no more appends of an attempt, and all below `end` is on its disk.

    `epochs`: those of its leadership, in order: at least one.
    """

    end: int
    epochs: list[EpochStart]


@frozen
class ClosePartition(Question[ClosedAt]):
    """Take no more appends of a partition. Failed if it is not led here, or not in this attempt."""

    number: int
    attempt: int


@frozen
class Adopted:
    """The target's log has the partition's state on disk; the new leadership begins at `start`."""

    start: int


@frozen
class AdoptPartition(Question[Adopted]):
    """Take the state of a partition from `source_node`, where it ends at `end`, and write it down.

    Nothing leads by that: the catalog says who does. Failed if the state does not fit here, or the
    source does not give it.
    """

    number: int
    attempt: int
    epoch: int
    source_node: int
    end: int


@frozen
class StatePage:
    """An answer followed by this many bytes: a page of a partition's state (smq.log.adoption)."""

    bytes: int
    page_count: int


@frozen
class ReadState(Question[StatePage]):
    """Ask the source for a page of the state of a closed partition, from 0 on."""

    number: int
    attempt: int
    page: int


@frozen
class TailBatches:
    """An answer followed by this many bytes of batches. `is_unread`: the disk cannot read any."""

    bytes: int
    is_unread: bool = False


@frozen
class ReadTail(Question[TailBatches]):
    """Ask a former log for whole batches from the one that holds `offset` on, as they were sent.

    They end at `end`, where the leadership of this log that has them does. `synced`: as Batches.
    """

    number: int
    offset: int
    end: int
    bytes_max: int
    synced: bool = False
