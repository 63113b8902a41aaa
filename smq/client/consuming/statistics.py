"""What a consumer tells of itself: `Consumer.statistics()`."""

from dataclasses import asdict, dataclass
from typing import Self

from smq.client.consuming.source.reading import Counts


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """What a consumer has read, and from where.

    records        those that were read again (after an overrun, of a poll that was broken off,
                   behind the record where a loop was left) count again
    ring_to_wire   how often a partition that was read from its ring went on over the wire: it was
                   too far behind, or put back there by an overrun or a seek, or its shard was gone
    wire_to_ring   how often one went on in its ring, also of those that began over the wire
    overruns       batches that the ring overtook while they were lent
    resets         positions that were not there any more, or in a topic that was created again
    rebalances     assignments that a group made
    """

    records: int
    records_from_rings: int
    ring_to_wire: int
    wire_to_ring: int
    overruns: int
    resets: int
    rebalances: int

    @classmethod
    def of(cls, counts: Counts, resets: int, rebalances: int) -> Self:
        """As they are now: the counts go on."""
        return cls(**asdict(counts), resets=resets, rebalances=rebalances)
