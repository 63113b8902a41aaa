"""Power cuts while the store's syncs fail: they take lines of the manifest that show.

Drawn apart from a seed's other events, which stay the same.
"""

import errno
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from smq.testing.simulation.world import World
from smq.wire.internal.form import Question
from smq.wire.internal.messages import MarkSealed

UNSYNCED_LINES = "unsynced-lines"
UNSYNCED_FROM, UNSYNCED_SHARE, UNSYNCED_MAX = 4001, 0.1, 2
FAILS_MS = 5000
RETRY_MS = 1000  # A coordinator looks again whether the store can be synced; until then it is mute.

Numbers = tuple[int, ...]


def unsynced_lines(world: World, after_ms: int) -> None:
    """Syncs of the store fail. Once a shard has been told that something is sealed, the power fails
    after a while."""
    failing = world.host.store_faults.failing
    failing["sync"] = errno.EIO
    world.disturb(FAILS_MS + RETRY_MS)  # A shard that starts is told of its topics late.

    def after_answer(question: Question[Any]) -> None:
        if isinstance(question, MarkSealed):
            world.host.after_answer = None
            world.scheduler.after_unless_healed(after_ms, partial(world.lives.lose_power, 0))

    def heal() -> None:
        failing.pop("sync", None)
        world.host.after_answer = None

    world.host.after_answer = after_answer
    world.scheduler.after(FAILS_MS, heal)


def draw_unsynced_lines(chance: Random) -> Numbers:
    """How long after the report the power fails: the log is freed meanwhile."""
    return (chance.choice((0, 20, 300)),)


def unsynced_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """When the store's syncs fail in a seed, with records before; in most seeds never."""
    chance = Random(f"unsynced {seed}")  # noqa: S311
    is_drawn = seed >= UNSYNCED_FROM and chance.random() < UNSYNCED_SHARE
    if not (is_drawn or is_wanted):
        return []
    events: list[tuple[int, str, Numbers]] = []
    for _ in range(chance.randint(1, UNSYNCED_MAX)):
        at_ms = 20 + chance.randint(0, end_ms)
        events.append((at_ms, UNSYNCED_LINES, draw(UNSYNCED_LINES, chance)))
        for _ in range(chance.randint(4, 12)):
            due_ms = max(20, at_ms + chance.randint(-300, 100))
            events.append((due_ms, "produce", draw("produce", chance)))
        events.append((at_ms + FAILS_MS, "produce", draw("produce", chance)))  # It lasts so long.
    return events
