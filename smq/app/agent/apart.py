"""Work that takes long for what a client has sent or asked for: it is done in threads of its own,
few at a time. In the loop it would hold up all calls, and in the threads of all other calls it
would hold up those, for there are only so many."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

COPIED_AT_ONCE_BYTES = 1024 * 1024  # A copy in the loop; a megabyte takes a third of a millisecond.
APART_MAX = 2  # At a time; what waits has one place for each call.
_THREADS = ThreadPoolExecutor(APART_MAX, "apart")

Result = TypeVar("Result")


async def done_apart(work: Callable[[], Result]) -> Result:
    """What some work gives, which lets the loop run: it is a kernel's, or Arrow's."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


async def done_by_size(work: Callable[[], Result], size_bytes: int, at_once_bytes: int) -> Result:
    """What some work on so many bytes gives: apart, if they are more than `at_once_bytes`."""
    return work() if size_bytes <= at_once_bytes else await done_apart(work)
