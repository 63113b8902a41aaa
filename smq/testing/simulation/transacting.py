"""Events of transactions, and of checkpoints amid them, drawn apart from a seed's other events.

A checkpoint copies producers in pieces, with markers between them; the power may fail right after.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from smq.log.producers import ROWS_AT_ONCE
from smq.testing.simulation.ledger import LEVELS
from smq.testing.simulation.processes import logs_of
from smq.testing.simulation.transactor import PARTITIONS, TOPIC
from smq.testing.simulation.world import World

TRANSACT, CHECKPOINT = "transact", "checkpoint"
TRANSACTIONS_FROM = 501  # Earlier seeds have no transactions, so they replay unchanged.
TRANSACTIONS_SHARE, TRANSACTIONS_MAX = 0.4, 25
CHECKPOINTS_SHARE, SOON_MS = 0.3, 12  # Amid a transaction.
CREATE_ATTEMPTS = 1000  # Longer than the store's syncs fail: a program waits for its topics.

Numbers = tuple[int, ...]


def transact(world: World, which: int, mask: int, commits: int, level: int) -> None:
    """A transactional program writes to some partitions, and commits or aborts."""
    create_topics(world, level)
    transactors = world.transactors
    transactors[which % len(transactors)].transact(mask, commits=bool(commits))


def create_topics(world: World, level: int) -> None:
    """Create the topics of transactions, unless they exist."""
    for name, partitions in PARTITIONS.items():
        if world.ledger.standing(name) is None:
            named = LEVELS[level] if name == TOPIC else "os"
            world.administrator.create(name, partitions, named, CREATE_ATTEMPTS)


def draw_transact(chance: Random) -> Numbers:
    """The program, its places, its decision, and the level of the first topic."""
    which, mask = chance.randrange(2), chance.choice((1, 2, 3, 7, 7))
    return which, mask, chance.choice((0, 1, 1, 1)), chance.choice((1, 2, 2))


def checkpoint(world: World, slow_ms: int, cut_ms: int) -> None:
    """Every log writes a checkpoint, producer by producer, while syncs are slow; the power fails so
    much later (-1: it does not)."""
    for faults in world.host.faults:
        faults.slow_ms = slow_ms
        world.scheduler.after(SOON_MS, partial(setattr, faults, "slow_ms", 0.0))
    world.disturb(SOON_MS + slow_ms)
    for log in logs_of(world.processes.values()):
        log.producers.copied_at_once = 1
        as_usual = partial(setattr, log.producers, "copied_at_once", ROWS_AT_ONCE)
        world.scheduler.after(SOON_MS + slow_ms, as_usual)
        log.checkpoint()
    if cut_ms >= 0:
        world.scheduler.after_unless_healed(cut_ms, lambda: world.lives.lose_power(0))


def draw_checkpoint(chance: Random) -> Numbers:
    """How slow syncs are, and when the power fails."""
    return chance.choice((0, 20, 20)), chance.choice((-1, 1, 2, 3, 5, 8))


def transactions_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """A seed's transactions until `end_ms`, some with a checkpoint in their midst; some seeds have
    none unless they are wanted."""
    chance = Random(f"transactions {seed}")  # noqa: S311
    is_drawn = seed >= TRANSACTIONS_FROM and chance.random() < TRANSACTIONS_SHARE
    if not (is_drawn or is_wanted):
        return []
    events = [
        (20 + chance.randint(0, end_ms), TRANSACT, draw(TRANSACT, chance))
        for _ in range(chance.randint(1, TRANSACTIONS_MAX))
    ]
    amid = [at_ms for at_ms, *_ in events if chance.random() < CHECKPOINTS_SHARE]
    return events + [
        (at_ms + chance.randint(0, SOON_MS), CHECKPOINT, draw(CHECKPOINT, chance)) for at_ms in amid
    ]
