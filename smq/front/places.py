"""Places of those who wait and are not worked for: for the rest of a form, or for an answer that is
late on purpose.

They take no slot of those who are worked for (smq.front.slots), so a slow client keeps nobody out.
They are bounded all the same: when all places are taken, a newcomer gets that of whoever has waited
longest, of the network that has most.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from smq.security.fair_queue import FairQueue


class WaitingPlaces:
    """`most` places. Invariant: no more wait."""

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, FairQueue[asyncio.Timeout]()

    def invariants(self) -> None:
        """Assert the class's invariant."""
        self._waiting.invariants()
        assert len(self._waiting) <= self._most

    @asynccontextmanager
    async def place(self, whose: str) -> AsyncIterator[None]:
        """Wait within the block. Raises TimeoutError if another gets the place."""
        async with asyncio.timeout(None) as patience:
            self._waiting.add(patience, whose)
            if len(self._waiting) > self._most:
                oldest = self._waiting.of_most()[0]
                self._waiting.discard(oldest)
                oldest.reschedule(asyncio.get_running_loop().time())
            try:
                yield
            finally:
                self._waiting.discard(patience)
