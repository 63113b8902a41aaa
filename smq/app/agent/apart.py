"""Work that takes long for what a client has sent or asked for: it is done in threads of its own,
few at a time. In the loop it would hold up all calls, and in the threads of all other calls it
would hold up those, for there are only so many."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

APART_MAX = 2  # At a time; what waits has one place for each call.
_THREADS = ThreadPoolExecutor(APART_MAX, "apart")

Result = TypeVar("Result")


async def done_apart(work: Callable[[], Result]) -> Result:
    """What some work gives, which lets the loop run: it is a kernel's, or Arrow's."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
