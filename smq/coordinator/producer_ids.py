"""Ids for idempotent producers: each is given once, for the life of the data directory.

They come in blocks: a block is durable before the first id of it goes out (the coordinator commits
before it answers), and what a restart leaves of one is never used.
"""

from smq.store.store import Store

BLOCK_IDS = 1000  # Kafka's block; a write for each thousand producers.


class ProducerIds:
    """The next id, and the end of the block it is from."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next = self._end = 0

    def next(self) -> int:
        """An id that nobody has had."""
        if self._next == self._end:
            self._next = self._store.allocate("producer_id", BLOCK_IDS)
            self._end = self._next + BLOCK_IDS
        self._next += 1
        return self._next - 1
