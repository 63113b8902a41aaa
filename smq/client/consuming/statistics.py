"""A consumer's counters: `Consumer.statistics()`."""

from dataclasses import asdict, dataclass
from typing import Self

from smq.client.consuming.source.reading import ReadCounts


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Counters of a consumer: records and bytes, by where they came from.

    records        records read; those that are read again count again (after an overrun, an
                   interrupted poll, or a loop that was left)
    ring_to_wire   how often a partition moved from its ring to the wire: it was too far behind, an
                   overrun or a seek put it back there, or its shard had ended
    wire_to_ring   how often a partition moved from the wire to its ring, also if it began there
    overruns       batches that the ring overtook while they were lent
    resets         positions that no longer exist, or are in a topic that was created again
    rebalances     assignments that the group made
    """

    records: int
    records_from_rings: int
    ring_to_wire: int
    wire_to_ring: int
    overruns: int
    resets: int
    rebalances: int

    @classmethod
    def of(cls, counts: ReadCounts, resets: int, rebalances: int) -> Self:
        """A snapshot of the counts."""
        return cls(**asdict(counts), resets=resets, rebalances=rebalances)
