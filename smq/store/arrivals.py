"""Numbers for what arrives: each is greater than all before it, over restarts too.

Order must not come from a time: clocks are set back. Numbers are taken from the store in blocks, so
that one costs nothing; a restart or a rollback leaves the rest of a block unused.
"""

from smq.store.database import Database

BLOCK = 1_000_000


class Arrivals:
    """The numbers of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next = self._end = 0

    def next(self) -> int:
        """The number of what arrives now. It is durable with the changes that follow it."""
        if self._next == self._end:
            [(self._next,)] = self._database.rows(
                "SELECT next FROM counters WHERE name = 'arrival'"
            )
            self._end = self._next + BLOCK
            self._database.change(
                "UPDATE counters SET next = ? WHERE name = 'arrival'", (self._end,), lazy=True
            )
        self._next += 1
        return self._next - 1

    def forget_block(self) -> None:
        """The store has been rolled back, perhaps behind the taking of the block."""
        self._next = self._end = 0
