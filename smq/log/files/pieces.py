"""Long work in short pieces, for threads beside the loop.

A job that takes milliseconds on the core of the loop, or of a client, adds to their latency: the
system lets it run to the end of its time slice.
"""

import os
from collections.abc import Iterator


def by_pieces(count: int, piece: int) -> Iterator[slice]:
    """Slices of at most `piece` of `count` items; after each, another thread may have the core."""
    for start in range(0, count, piece):
        yield slice(start, min(start + piece, count))
        os.sched_yield()
