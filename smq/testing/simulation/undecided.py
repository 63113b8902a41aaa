"""Transactions that stay open while their log is short of space: what lies under them is sealed as
it was sent, and again once it is decided.

Drawn apart from a seed's other events, which stay the same.
"""

from collections.abc import Callable, Mapping
from random import Random

from smq.app.process.inheritance import SEALER
from smq.testing.simulation.compacting import SHARDS, THE_SEALER, die_after
from smq.testing.simulation.sealer import SealerProcess
from smq.testing.simulation.transacting import TRANSACT
from smq.testing.simulation.transactor import TransactionTopics
from smq.testing.simulation.world import World
from smq.wire.internal.manifest import CommitSegments, CommitUndecided
from smq.wire.internal.messages import MarkSealed

HOLD, SHORT, LOOK, DIE_AMID_SEALING = "hold-open", "is-short", "look-on", "die-amid-sealing"
UNDECIDED_FROM, UNDECIDED_SHARE, UNDECIDED_MAX = 501, 0.5, 3
HELD_MS = (300, 1000, 3000)  # Shorter than the transaction's timeout.
DIES_SHARE, AFTER_MS = 0.6, 600

Numbers = tuple[int, ...]


def hold_open(world: World, which: int, ms: int) -> None:
    """A transactional program ends no transaction for a while."""
    world.transactors[which % len(world.transactors)].hold(ms)


def is_short(world: World) -> None:
    """A log is short of space."""
    sealer = world.processes.get(SEALER)
    if isinstance(sealer, SealerProcess):
        sealer.press()


def look_on(world: World) -> None:
    """A reader of committed records reads the topics of transactions."""
    for incarnation in TransactionTopics(world).all:
        world.onlooker.read(incarnation)


def die_amid_sealing(world: World, who: int, nth: int) -> None:
    """Some die as soon as the sealer has the n-th answer to a report or a line from now on."""
    die_after(world, (CommitUndecided, CommitSegments, MarkSealed), who, nth)


def draw_hold(chance: Random) -> Numbers:
    """Which program, and for how long."""
    return chance.randrange(2), chance.choice(HELD_MS)


def draw_die_amid_sealing(chance: Random) -> Numbers:
    """Who dies, and after which answer."""
    return chance.randint(SHARDS, THE_SEALER), chance.choice((1, 1, 2, 2, 3, 4, 6, 9))


UNDECIDED_KINDS: Mapping[str, tuple[Callable[[Random], Numbers], Callable[..., None]]] = {
    HOLD: (draw_hold, hold_open),
    SHORT: (lambda _: (), is_short),
    LOOK: (lambda _: (), look_on),
    DIE_AMID_SEALING: (draw_die_amid_sealing, die_amid_sealing),
}
UNDECIDED = (*UNDECIDED_KINDS,)


def undecided_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """A seed's transactions that stay open, with others and records beside them; many seeds have
    none unless they are wanted."""
    chance = Random(f"undecided {seed}")  # noqa: S311
    is_drawn = seed >= UNDECIDED_FROM and chance.random() < UNDECIDED_SHARE
    if not (is_drawn or is_wanted):
        return []
    events: list[tuple[int, str, Numbers]] = []

    def soon(at_ms: int, ms: int, kind: str, most: int) -> None:
        for _ in range(chance.randint(1, most)):
            events.append((at_ms + chance.randint(5, ms), kind, draw(kind, chance)))

    for _ in range(chance.randint(1, UNDECIDED_MAX)):
        at_ms = 20 + chance.randint(0, end_ms)
        held = which, ms = draw(HOLD, chance)
        events += [(at_ms, HOLD, held), (at_ms, TRANSACT, (which, 7, chance.randrange(2), 2))]
        soon(at_ms, ms, SHORT, 5)
        soon(at_ms, ms + AFTER_MS, LOOK, 4)
        soon(at_ms, ms, "produce", 8)
        soon(at_ms + ms, AFTER_MS, "produce", 4)
        for _ in range(chance.randint(1, 6)):
            _, *numbers = draw(TRANSACT, chance)
            events.append((at_ms + chance.randint(0, ms), TRANSACT, (which + 1, *numbers)))
        if chance.random() < DIES_SHARE:
            soon(at_ms, ms + AFTER_MS, DIE_AMID_SEALING, 1)
    return events
