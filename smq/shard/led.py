"""A partition that a shard leads."""

from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from shm.kernels.base.words import (
    FLAG_FETCH_LEFT,
    P_BATCH_BYTES_MAX,
    P_DECIDED_END,
    P_FLAGS,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    P_LOG_END,
    P_LOG_START,
    P_MAX_TIMESTAMP,
    P_SEALED_END,
    P_UNSEALED_BYTES,
)
from smq.log.log import Log
from smq.model.catalog import Topic
from smq.wire.internal.transactions import NOT_WRITTEN

_OFFSETS = itemgetter(
    P_LOG_START,
    P_SEALED_END,
    P_LAST_STABLE,
    P_HIGH_WATERMARK,
    P_LOG_END,
    P_MAX_TIMESTAMP,
    P_DECIDED_END,
)


class Offsets(NamedTuple):
    """The offsets of a partition, Kafka's words.

    Below `decided_end` sealed segments hold only what is decided (smq.sealer.undecided).
    """

    log_start: int
    sealed_end: int
    last_stable: int
    high_watermark: int
    log_end: int
    max_timestamp: int
    decided_end: int


@dataclass(frozen=True, slots=True)
class Led:
    """A partition that this shard leads."""

    log: Log
    number: int
    slot: int
    topic: Topic

    def offsets(self) -> Offsets:
        """The partition's current offsets."""
        return Offsets(*_OFFSETS(self.log.partitions.table[self.slot].tolist()))

    @property
    def code(self) -> int:
        """log << 32 | slot: the partition as directory and waiting requests have it."""
        return self.log.number << 32 | self.slot

    @property
    def epoch(self) -> int:
        """The partition's leader epoch."""
        return self.log.partitions.epochs[self.number][-1][0]

    def batch_bytes_max(self) -> int:
        """The topic's `max.message.bytes`."""
        return int(self.log.partitions.table[self.slot, P_BATCH_BYTES_MAX])

    def unsealed_bytes(self) -> int:
        """The bytes of the partition that only the log holds."""
        return int(self.log.partitions.table[self.slot, P_UNSEALED_BYTES])

    @property
    def delivers_inline(self) -> bool:
        """Whether fetches return payloads by reference as values, where they fit."""
        return bool(self.log.partitions.table[self.slot, P_FLAGS] & FLAG_FETCH_LEFT)

    def may_have_lost(self, producer_id: int, generation: int) -> bool:
        """Whether records of a producer's open transaction, which has been acknowledged some since
        this generation, may be lost; NOT_WRITTEN: there are none.

        A start's losses are those of its log. Damage that is found while the log runs is in one
        place: those lose that have begun before it.
        """
        if generation == NOT_WRITTEN:
            return False
        opened = self.log.transactions.open_of(self.number, producer_id)
        if opened and self.log.lookup.has_damage_from(self.number, opened.first_offset):
            return True
        return self.log.losses.since(self.log.partitions.level_of(self.slot), generation)
