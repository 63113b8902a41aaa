"""Long work in short pieces, for threads beside the loop.

A job that takes milliseconds on the core of the loop, or of a client, adds to their latency: the
system lets it run to the end of its time slice. A start has no loop yet: where its core is busy, it
would lose a time slice of each other process with every piece.
"""

import os
import threading
from collections.abc import Iterator


def by_pieces(count: int, piece: int) -> Iterator[slice]:
    """Slices of at most `piece` of `count` items; after each, another thread may have the core, if
    this is not the main one."""
    is_beside = threading.current_thread() is not threading.main_thread()
    for start in range(0, count, piece):
        yield slice(start, min(start + piece, count))
        if is_beside:
            os.sched_yield()
