"""Deaths between a compaction's steps: its report to the shard, and each of its lines.

Drawn apart from a seed's other events, which stay the same.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any

from smq.app.process.inheritance import SEALER
from smq.testing.simulation.world import World
from smq.wire.internal.form import Question
from smq.wire.internal.manifest import ReplaceSegments
from smq.wire.internal.messages import MarkCompacted

DIE_AMID_COMPACTION = "die-amid-compaction"
COMPACTING_FROM, COMPACTING_SHARE, COMPACTING_MAX = 101, 0.3, 3
SOON_MS = 1500
SHARDS, ALL, ALL_BY_A_POWER_CUT, THE_SEALER = range(4)  # Who dies.

Numbers = tuple[int, ...]


def die_amid_compaction(world: World, who: int, nth: int) -> None:
    """Some die as soon as the sealer has the n-th answer to a report or a line from now on."""
    die_after(world, (MarkCompacted, ReplaceSegments), who, nth)


def die_after(world: World, kinds: tuple[type[Question[Any]], ...], who: int, nth: int) -> None:
    """Some die as soon as the sealer has the n-th answer to a question of these kinds from now on:
    the shards, all processes, all by a power cut, or the sealer."""
    answers = count(1)

    def after_answer(question: Question[Any]) -> None:
        if isinstance(question, kinds) and next(answers) == nth:
            world.host.after_answer = None
            # Before the next one.
            world.scheduler.after_unless_healed(0, partial(_die, world, who))

    world.host.after_answer = after_answer


def _die(world: World, who: int) -> None:
    if who == ALL:
        world.lives.go_down(0)
    elif who == ALL_BY_A_POWER_CUT:
        world.lives.lose_power(0)
    else:
        for name in sorted(world.processes):
            if name == SEALER if who == THE_SEALER else name.startswith("shard"):
                world.lives.kill(name)


def draw_die_amid_compaction(chance: Random) -> Numbers:
    """Who dies, and after which answer."""
    return chance.randint(SHARDS, THE_SEALER), chance.choice((1, 1, 2, 2, 3, 5))


def compacting_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """A seed's deaths amid compactions, each with records after it; most seeds have none unless
    they are wanted."""
    chance = Random(f"compacting {seed}")  # noqa: S311
    is_drawn = seed >= COMPACTING_FROM and chance.random() < COMPACTING_SHARE
    if not (is_drawn or is_wanted):
        return []
    events: list[tuple[int, str, Numbers]] = []
    for _ in range(chance.randint(1, COMPACTING_MAX)):
        at_ms = 20 + chance.randint(0, end_ms)
        events.append((at_ms, DIE_AMID_COMPACTION, draw(DIE_AMID_COMPACTION, chance)))
        for _ in range(chance.randint(2, 8)):
            due_ms = at_ms + chance.randint(0, SOON_MS)
            events.append((due_ms, "produce", draw("produce", chance)))
    return events
