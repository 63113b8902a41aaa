"""An answer that takes a thread its time, and is the same for all who wait for it.

    asked ──▶ ┌ under way ┐
       asked ────▶        └▶ ┌ the next one ┐ ──▶ for all who have asked since the former began

So a thousand who ask at once cost two looks, and none gets what was seen before he asked. There is
a pause between two looks, so that who asks without end does not keep the thread busy. All get their
answer a few in a turn of the loop, as each then answers its client.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from smq.front.turns import STEPS_A_TURN

PAUSE_S = 0.1  # Much less than the second that Kubernetes waits.

T = TypeVar("T")


class Shared(Generic[T]):
    """What `look` returns, which is called in one thread at a time."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look, self._thread = look, CapacityLimiter(1)
        self._next_s = 0.0  # When the next look may begin, by the loop's clock.
        self._waiting: list[asyncio.Future[T]] = []
        self._looks = set[asyncio.Task[None]]()  # One under way, and one that waits for it.

    async def answer(self) -> T:
        """What a look finds that begins from now on. Raises what it raises."""
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._look_for_all())
            self._looks.add(task)
            task.add_done_callback(self._looks.discard)
        return await mine

    async def _look_for_all(self) -> None:
        clock_s = asyncio.get_running_loop().time
        async with self._thread:  # Until the look before has ended.
            await asyncio.sleep(max(0.0, self._next_s - clock_s()))
            waiting, self._waiting = self._waiting, []
            look = asyncio.ensure_future(run_sync(self._look, limiter=CapacityLimiter(1)))
            await asyncio.wait({look})
            self._next_s = clock_s() + PAUSE_S
        reason = look.exception()
        for n, each in enumerate(waiting, 1):
            if not each.done():  # Else who asked has gone.
                if reason is None:
                    each.set_result(look.result())
                else:
                    each.set_exception(reason)
            if n % STEPS_A_TURN == 0:
                await asyncio.sleep(0)
