"""Write-backs that fail while segments fill: the page cache alone has what they were to write.

Drawn apart from a seed's other events, which stay the same.
"""

import errno
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from smq.testing.simulation.world import World

WRITE_BACK_FAILS = "write-back-fails"
WRITE_BACK_FROM, WRITE_BACK_SHARE = 6001, 0.2
FILLING_TIMES, FILLING = 24, (15, 5, 300)  # Partitions, records and bytes that fill a segment.
AFTER_MS = 500

Numbers = tuple[int, ...]


def write_back_fails(world: World, ms: int) -> None:
    """Write-backs of all logs fail for a while, and nothing else does."""
    for faults in world.host.faults:
        faults.failing["write_back"] = errno.EIO
        world.scheduler.after(ms, partial(faults.failing.pop, "write_back", None))


def draw_write_back_fails(chance: Random) -> Numbers:
    """For how long."""
    return (chance.choice((50, 300, 1500)),)


WRITE_BACK_KINDS: Mapping[str, tuple[Callable[[Random], Numbers], Callable[..., None]]] = {
    WRITE_BACK_FAILS: (draw_write_back_fails, write_back_fails)
}


def write_back_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """When write-backs fail in a seed, with records that fill segments and readers of them; in most
    seeds never."""
    chance = Random(f"write-back {seed}")  # noqa: S311
    is_drawn = seed >= WRITE_BACK_FROM and chance.random() < WRITE_BACK_SHARE
    if not (is_drawn or is_wanted):
        return []
    at_ms = 20 + chance.randint(0, end_ms)
    failing = (ms,) = draw(WRITE_BACK_FAILS, chance)
    events: list[tuple[int, str, Numbers]] = [(at_ms, WRITE_BACK_FAILS, failing)]
    for _ in range(FILLING_TIMES):
        who = chance.randrange(3), chance.randrange(3)
        due_ms = max(20, at_ms + chance.randint(-AFTER_MS, ms))
        events.append((due_ms, "produce", (*who, *FILLING)))
    for _ in range(chance.randint(1, 6)):
        due_ms = at_ms + chance.randint(0, ms + AFTER_MS)
        events.append((due_ms, "fetch", draw("fetch", chance)))
    return events
