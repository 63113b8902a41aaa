"""Ids for idempotent producers: each is given out once in the life of the data directory.

Ids come from blocks. A block is durable before its first id goes out (the coordinator commits
before it answers). A restart discards the rest of a block.
"""

from smq.store.store import Store

BLOCK_IDS = 1000  # Kafka's block size: one write for a thousand producers.


class ProducerIds:
    """The next id, and the end of its block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = self._end = 0

    def next(self) -> int:
        """A new id."""
        if self._next == self._end:
            self._next = self._store.allocate("producer_id", BLOCK_IDS)
            self._end = self._next + BLOCK_IDS
        self._next += 1
        return self._next - 1
