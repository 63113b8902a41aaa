"""Those who are slow for longer than others wait for them: a coordinator, a consumer.

Drawn apart from a seed's other events, which stay the same. While somebody is slow, others go on:
each of these events comes with records that are sent meanwhile and a while after.
"""

from collections.abc import Callable, Collection, Sequence
from random import Random

from smq.app.process.inheritance import COORDINATOR
from smq.testing.simulation.ledger import Incarnation
from smq.testing.simulation.world import World

SLOW = ("coordinator-hangs", "pause")
SLOW_FROM, SLOW_SHARE, SLOW_MAX = 101, 0.3, 3
SHORT_MS = 500
BACKLOG, BACKLOG_TIMES, BACKLOG_MS = "backlog", 12, 1500
BACKLOG_TOPICS, BACKLOG_RECORDS, BACKLOG_BYTES = 3, 5, 300  # Records and bytes of a batch.

Numbers = tuple[int, ...]


def hang_coordinator(world: World, ms: int) -> None:
    """The coordinator hangs for longer than workers wait for it: they give up what it still has."""
    if COORDINATOR in world.processes:
        world.scheduler.freeze(COORDINATOR, ms)


def pause_consumer(world: World, client: int, topics: Sequence[Incarnation], ms: int) -> None:
    """A consumer asks for topics from their starts, twice at once, and reads nothing for a while.

    A worker of the sealer that has nothing to do ends meanwhile.
    """
    consumer = world.consumers[client % len(world.consumers)]
    for node in range(1, world.host.config.shards + 1):
        consumer.fetch_and_pause(list(topics), node, ms)


def draw_pause(chance: Random) -> Numbers:
    """The consumer, the topics, and for how long."""
    times = (SHORT_MS, 24_000, 30_000)
    return chance.randrange(2), chance.choice((1, 2, 4, 7)), chance.choice(times)


def slow_of(
    seed: int,
    end_ms: int,
    kinds: Collection[str],
    draw: Callable[[str, Random], Numbers],
    *,
    is_wanted: bool,
) -> list[tuple[int, str, Numbers]]:
    """Who is slow in a seed, and when; in most seeds nobody is unless they are wanted."""
    chance = Random(f"slow {seed}")  # noqa: S311
    allowed = [kind for kind in SLOW if kind in kinds]
    is_drawn = seed >= SLOW_FROM and chance.random() < SLOW_SHARE
    if not (is_drawn or is_wanted) or not allowed:
        return []
    events: list[tuple[int, str, Numbers]] = []
    at_ms = 20 + chance.randint(0, end_ms)
    for kind in chance.choices(allowed, k=chance.randint(1, SLOW_MAX)):
        numbers = draw(kind, chance)
        if kind == "pause":
            events, at_ms = events + _backlog(at_ms, chance), at_ms + 2 * BACKLOG_MS
        after_ms = at_ms + numbers[-1] + 1000
        events.append((at_ms, kind, numbers))
        if kind == "pause":  # Another consumer has a worker start anew meanwhile.
            other = (numbers[0] + 1, chance.choice((1, 2, 4)), SHORT_MS)
            events.append((at_ms + numbers[-1] * 3 // 4, kind, other))
        for _ in range(chance.randint(2, 8)):
            due_ms = chance.randint(max(0, at_ms - 1000), after_ms)
            events.append((due_ms, "produce", draw("produce", chance)))
        events.append((after_ms, "produce", draw("produce", chance)))
        at_ms = after_ms
    return events


def _backlog(at_ms: int, chance: Random) -> list[tuple[int, str, Numbers]]:
    """More records than are copied into an answer, for each partition: what is sealed of them is
    sent from the sealer's file."""
    return [
        (at_ms + chance.randint(0, BACKLOG_MS), BACKLOG, (chance.randrange(3), topic))
        for topic in range(BACKLOG_TOPICS)
        for _ in range(BACKLOG_TIMES)
    ]
