"""The events of a simulation: a list drawn from the seed before anything runs.

An event is data: a time, a kind, and numbers. Numbers are valid in any list ("the n-th topic",
modulo their count), so any sublist still runs: that is how a failing list is shrunk. A new kind is
a new row of KINDS.
"""

import errno
from collections.abc import Callable, Collection
from functools import partial
from random import Random
from typing import NamedTuple

from smq.app.process.inheritance import COORDINATOR
from smq.testing.simulation.bad_sectors import SECTORS_APART, SECTORS_KINDS
from smq.testing.simulation.compacting import (
    DIE_AMID_COMPACTION,
    compacting_of,
    die_amid_compaction,
    draw_die_amid_compaction,
)
from smq.testing.simulation.environment import TOPICS, name_of
from smq.testing.simulation.ledger import LEVELS
from smq.testing.simulation.securing import SECURING_KINDS, secured_of
from smq.testing.simulation.slow import (
    BACKLOG,
    BACKLOG_BYTES,
    BACKLOG_RECORDS,
    SLOW,
    draw_pause,
    hang_coordinator,
    pause_consumer,
    slow_of,
)
from smq.testing.simulation.transacting import (
    CHECKPOINT,
    TRANSACT,
    checkpoint,
    draw_checkpoint,
    draw_transact,
    transact,
    transactions_of,
)
from smq.testing.simulation.undecided import UNDECIDED, UNDECIDED_KINDS, undecided_of
from smq.testing.simulation.unsynced import (
    RETRY_MS,
    UNSYNCED_LINES,
    draw_unsynced_lines,
    unsynced_lines,
    unsynced_of,
)
from smq.testing.simulation.world import World
from smq.testing.simulation.writing_back import WRITE_BACK_KINDS, write_back_of

ALL_PARTITIONS = 15
# Members of a group are drawn separately, for the same reason, and over several sessions.
MEMBERS, MEMBERS_FROM, MEMBERS_SHARE = ("come", "vanish", "coordinator-stops"), 301, 0.3
# So is setting the wall clock: by seconds, hours, years; -1, 0 or 1 is the direction.
SET_CLOCK, CLOCK_FROM, CLOCK_SHARE, CLOCK_MAX = "set-clock", 501, 0.4, 8
STEPS_S = (1, 10, 600, 3600, 25 * 3600, 8 * 86_400, 365 * 86_400)
MEMBERS_ROUNDS_MAX, MEMBERS_ROUND_MS, MEMBERS_SPREAD_MS = 4, 16_000, 6_000
# Batches that inflate far, for topics that are looked into: also drawn separately.
INFLATE, INFLATE_FROM, INFLATE_SHARE, INFLATE_MAX, INFLATED_BYTES = "inflate", 101, 0.3, 3, 600_000
EVENTS_MIN, EVENTS_MAX = 10, 60
FLOOD_TIMES = 10  # A flood exceeds the log's room: see Host.is_flooded.
SYNCS_FAIL_TIMES = 10  # As long as a full disk of the store lasts.
MOODS = (0.0, 0.3, 1.0, 1.0, 3.0)
"""The frequencies of a kind: each seed has much of some, none of others."""

Numbers = tuple[int, ...]


class Event(NamedTuple):
    """See above."""

    at_ms: int
    kind: str
    numbers: Numbers

    def __str__(self) -> str:
        return f"{self.at_ms:6} ms  {self.kind} {' '.join(map(str, self.numbers))}"


class Kind(NamedTuple):
    """A row: its frequency, its numbers, its action."""

    weight: float
    draw: Callable[[Random], Numbers]
    happen: Callable[..., None]


def _produce(  # noqa: PLR0913, PLR0917  (An event's numbers.)
    world: World, client: int, topic: int, mask: int, records: int, size: int
) -> None:
    """Send records to the partitions of a mask; in a flood, repeatedly."""
    incarnation = world.ledger.standing(name_of(topic))
    if incarnation is not None:
        count = incarnation.topic.partition_count
        partitions = [i for i in range(count) if mask >> i & 1] or [mask % count]
        producer = world.producers[client % len(world.producers)]
        for _ in range(FLOOD_TIMES if world.host.is_flooded else 1):
            producer.produce(incarnation, partitions, records, size)


def _inflate(world: World, client: int, topic: int) -> None:
    """Send a large, compressed record to each partition of a topic."""
    incarnation = world.ledger.standing(name_of(topic))
    if incarnation is not None:
        partitions = list(range(incarnation.topic.partition_count))
        producer = world.producers[client % len(world.producers)]
        producer.produce(incarnation, partitions, 1, INFLATED_BYTES)


def _fetch(  # noqa: PLR0913, PLR0917  (An event's numbers.)
    world: World, client: int, mask: int, wait_ms: int, least: int, version: int
) -> None:
    """A consumer fetches some topics once from each node."""
    names = (name_of(topic) for topic in range(TOPICS) if mask >> topic & 1)
    topics = [found for name in names if (found := world.ledger.standing(name)) is not None]
    consumer = world.consumers[client % len(world.consumers)]
    for node in range(1, world.host.config.shards + 1):
        consumer.fetch(topics, node, wait_ms, least, version)


def _commit(world: World, client: int, topic: int, partition: int) -> None:
    """A group commits one more offset."""
    incarnation = world.ledger.standing(name_of(topic))
    if incarnation is not None:
        committer = world.committers[client % len(world.committers)]
        committer.commit(incarnation, partition % incarnation.topic.partition_count)


def _create(world: World, topic: int, partitions: int, level: int) -> None:
    """Create a topic, unless the name exists."""
    world.administrator.create(name_of(topic), partitions, LEVELS[level])


def _delete(world: World, topic: int) -> None:
    """Delete a topic."""
    world.administrator.delete(name_of(topic))


def _create_again(world: World, topic: int, partitions: int, level: int) -> None:
    """Delete a topic and immediately create another one of its name."""
    _delete(world, topic)
    _create(world, topic, partitions, level)


def _kill(world: World, victim: int, fuse: int, next_fuse: int) -> None:
    """A process dies after this many system calls; so may its successor."""
    names = sorted(world.processes)
    if names:
        world.lives.light(names[victim % len(names)], fuse, world.lives.kill)
        world.lives.next_fuse = next_fuse


def _kill_all(world: World, victim: int, fuse: int, shards: int, again_ms: int) -> None:
    """All processes die when one of them has made this many calls; a new number of shards starts.

    `again_ms`: the power fails this much later (-1: it does not).
    """
    _all_at_once(world, victim, fuse, lambda: world.lives.go_down(shards))
    if again_ms >= 0:
        world.scheduler.after_unless_healed(again_ms, lambda: world.lives.lose_power(0))


def _cut_power(world: World, victim: int, fuse: int, shards: int, again_ms: int) -> None:
    """As above, but the disks lose unsynced data. Again: all processes are killed."""
    _all_at_once(world, victim, fuse, lambda: world.lives.lose_power(shards))
    if again_ms >= 0:
        world.scheduler.after_unless_healed(again_ms, lambda: world.lives.go_down(0))


def _all_at_once(world: World, victim: int, fuse: int, ends: Callable[[], None]) -> None:
    names = sorted(world.processes)
    if names:
        world.lives.light(names[victim % len(names)], fuse, lambda _: ends())


def _disk_fails(world: World, log: int, method: int, error: int, ms: int) -> None:
    """Calls of one kind, or all that write, fail for a while on one log's disk or on all."""
    methods = FAILING[method]
    chosen = world.host.faults if log < 0 else [world.host.faults[log % len(world.host.faults)]]
    for faults in chosen:
        for name in methods:
            faults.failing[name] = error
            world.scheduler.after(ms, partial(faults.failing.pop, name, None))


def _disk_is_slow(world: World, log: int, slow_ms: int, ms: int, what: int) -> None:
    """Syncs and jobs, or only jobs, are slow for a while: checkpoints and tables come late."""
    faults = world.host.faults[log % len(world.host.faults)]
    world.disturb(ms + slow_ms)  # A fetch that misses the page cache is a job.
    for name in ("slow_ms", "slow_jobs_ms") if what else ("slow_jobs_ms",):
        setattr(faults, name, slow_ms)
        world.scheduler.after(ms, partial(setattr, faults, name, 0.0))


def _store_fails(world: World, ms: int) -> None:
    """The coordinator's disk is full for a while, or, for longer, its syncs fail after commits."""
    host = world.host
    failing, what = host.store_faults.failing, host.store_chance.choice(("commit", "sync"))
    failing[what] = errno.ENOSPC
    ms_in_all = ms * SYNCS_FAIL_TIMES if what == "sync" else ms
    world.disturb(ms_in_all + RETRY_MS)
    world.scheduler.after(ms_in_all, lambda: failing.pop(what, None))


def _sdk_send(world: World, topic: int, mask: int, records: int, size: int) -> None:
    """The SDK sends records to some partitions."""
    incarnation = world.ledger.standing(name_of(topic))
    if incarnation is not None:
        count = incarnation.topic.partition_count
        partitions = [i for i in range(count) if mask >> i & 1] or [mask % count]
        world.sdk_producer.send(incarnation, partitions, records, size)


def _sdk_read(world: World, which: int, polls: int) -> None:
    """A consumer of the SDK polls."""
    world.sdk_consumers[which % len(world.sdk_consumers)].read(polls)


def _sdk_leave(world: World, which: int) -> None:
    """A consumer of the SDK is closed."""
    world.sdk_consumers[which % len(world.sdk_consumers)].leave()


def _set_clock(world: World, step: int, direction: int) -> None:
    """Somebody sets the wall clock of the host, ahead, back or right."""
    world.clock.set_wall(direction * STEPS_S[step % len(STEPS_S)])


def _come(world: World, which: int) -> None:
    """A member joins its group."""
    world.members[which % len(world.members)].come()


def _vanish(world: World, which: int) -> None:
    """A member dies, and its group is not told."""
    world.members[which % len(world.members)].vanish()


def _coordinator_stops(world: World, ms: int) -> None:
    """The coordinator stops for longer than a session: many deadlines pass in one wake-up."""
    if COORDINATOR in world.processes:
        world.scheduler.freeze(COORDINATOR, ms)


def _pause(world: World, client: int, mask: int, ms: int) -> None:
    """A consumer asks for some topics from their starts, and reads nothing for a while."""
    names = (name_of(topic) for topic in range(TOPICS) if mask >> topic & 1)
    topics = [found for name in names if (found := world.ledger.standing(name)) is not None]
    pause_consumer(world, client, topics, ms)


def _backlog(world: World, client: int, topic: int) -> None:
    """A topic gets one of many batches, if its log is sealed: otherwise that becomes full."""
    if world.host.seals:
        _produce(world, client, topic, ALL_PARTITIONS, BACKLOG_RECORDS, BACKLOG_BYTES)


def _cut(world: World, which: int) -> None:
    """Cut a connection between a client and a node or between two of our processes."""
    connections = world.network.connections()
    if connections:
        connections[which % len(connections)].reset()


def _freeze(world: World, victim: int, ms: int) -> None:
    """A process gets no CPU for a while."""
    names = sorted(world.processes)
    if names:
        world.scheduler.freeze(names[victim % len(names)], ms)


def _flip(world: World, log: int) -> None:
    """Flip a bit of a segment on its disk."""
    disks = world.host.disks
    if disks[log % len(disks)].flip_a_bit():
        world.ledger.damaged()


FAILING: tuple[tuple[str, ...], ...] = (
    ("write",),
    ("sync", "write_back"),
    ("replace",),
    ("create",),
    ("rename",),
    ("replace", "create", "fill"),  # A full disk rejects new allocations only.
    ("write", "write_back", "sync", "replace", "create", "fill", "rename"),
)


def _level(chance: Random) -> int:
    """`memory` is rare: no kernel takes turns of a shard that has a topic of this level."""
    return chance.choice((0, 1, 1, 2, 2, 2))


def _fuse(chance: Random) -> int:
    return chance.choice((0, chance.randint(0, 5), chance.randint(0, 60)))


def _again_ms(chance: Random) -> int:
    """The delay of a second death, soon after the first: a start must survive a crash."""
    return chance.choice((-1, -1, 20, 100, 400))


def _shards(chance: Random) -> int:
    return chance.choice((0, 0, 0, 1, 2))


KINDS: dict[str, Kind] = {
    "produce": Kind(
        12,
        lambda c: (
            c.randrange(3),
            c.randrange(TOPICS),
            c.choice((1, 2, 3, 7, 15)),
            c.choice((1, 1, 2, 5)),
            c.choice((0, 10, 100, 300)),
        ),
        _produce,
    ),
    "fetch": Kind(
        7,
        lambda c: (
            c.randrange(2),
            c.choice((1, 2, 4, 3, 5, 7)),
            c.choice((0, 20, 200, 1000, 2000, 3000)),
            c.choice((0, 1, 1, 1000, 1000)),
            c.choice((12, 12, 13)),
        ),
        _fetch,
    ),
    "sdk-send": Kind(
        3,
        lambda c: (
            c.randrange(TOPICS),
            c.choice((1, 2, 3, 7)),
            c.choice((1, 3, 10)),
            c.choice((0, 10, 300)),
        ),
        _sdk_send,
    ),
    "sdk-read": Kind(3, lambda c: (c.randrange(3), c.choice((1, 3, 10))), _sdk_read),
    "sdk-leave": Kind(0.3, lambda c: (c.randrange(3),), _sdk_leave),
    "commit": Kind(2, lambda c: (c.randrange(2), c.randrange(TOPICS), c.randrange(4)), _commit),
    "create": Kind(1.5, lambda c: (c.randrange(TOPICS), c.randint(1, 4), _level(c)), _create),
    "delete": Kind(0.7, lambda c: (c.randrange(TOPICS),), _delete),
    "create-again": Kind(
        2, lambda c: (c.randrange(TOPICS), c.randint(1, 4), _level(c)), _create_again
    ),
    "kill": Kind(
        3,
        lambda c: (c.randrange(6), _fuse(c), c.choice((-1, -1, -1, c.randint(0, 30)))),
        _kill,
    ),
    "kill-all": Kind(1, lambda c: (c.randrange(6), _fuse(c), _shards(c), _again_ms(c)), _kill_all),
    "cut-power": Kind(
        2, lambda c: (c.randrange(6), _fuse(c), _shards(c), _again_ms(c)), _cut_power
    ),
    "disk-fails": Kind(
        2,
        lambda c: (
            c.randint(-2, 2),
            c.randrange(len(FAILING)),
            c.choice((errno.ENOSPC, errno.EIO)),
            c.choice((5, 50, 300, 1500, 5000)),
        ),
        _disk_fails,
    ),
    "disk-is-slow": Kind(
        1.5,
        lambda c: (
            c.randrange(3),
            c.choice((5, 50, 300, 2000)),
            c.randint(10, 3000),
            c.randrange(2),
        ),
        _disk_is_slow,
    ),
    "store-fails": Kind(0.5, lambda c: (c.choice((5, 50, 300)),), _store_fails),
    "cut": Kind(3, lambda c: (c.randrange(30),), _cut),
    "freeze": Kind(1, lambda c: (c.randrange(6), c.choice((5, 50, 500))), _freeze),
    "flip": Kind(0.1, lambda c: (c.randrange(3),), _flip),
    # Drawn separately, by `transactions_of`, so a seed's other events stay the same.
    TRANSACT: Kind(0, draw_transact, transact),
    CHECKPOINT: Kind(0, draw_checkpoint, checkpoint),
    # By `clock_of`.
    SET_CLOCK: Kind(0, lambda c: (c.randrange(len(STEPS_S)), c.choice((-1, -1, 0, 1))), _set_clock),
    # By `inflating_of`.
    INFLATE: Kind(0, lambda c: (c.randrange(3), c.randrange(TOPICS)), _inflate),
    # By `members_of`.
    "come": Kind(0, lambda c: (c.randrange(4),), _come),
    "vanish": Kind(0, lambda c: (c.randrange(4),), _vanish),
    "coordinator-stops": Kind(0, lambda c: (c.randint(6_000, 9_000),), _coordinator_stops),
    # By `slow.slow_of`.
    "coordinator-hangs": Kind(0, lambda c: (c.randint(4_000, 25_000),), hang_coordinator),
    "pause": Kind(0, draw_pause, _pause),
    BACKLOG: Kind(0, lambda c: (c.randrange(3), c.randrange(TOPICS)), _backlog),
    # By `compacting_of`.
    DIE_AMID_COMPACTION: Kind(0, draw_die_amid_compaction, die_amid_compaction),
    # By `unsynced_of`, `undecided_of`, `write_back_of`, `SECTORS_APART` and `secured_of`.
    UNSYNCED_LINES: Kind(0, draw_unsynced_lines, unsynced_lines),
    **{
        name: Kind(0, draw, happen)
        for kinds in (UNDECIDED_KINDS, WRITE_BACK_KINDS, SECTORS_KINDS, SECURING_KINDS)
        for name, (draw, happen) in kinds.items()
    },
}
APART = (
    (frozenset({DIE_AMID_COMPACTION}), compacting_of),
    (frozenset({UNSYNCED_LINES}), unsynced_of),
    (frozenset(UNDECIDED), undecided_of),
    (frozenset(WRITE_BACK_KINDS), write_back_of),
    *SECTORS_APART,
)
DRAWN_APART = frozenset(
    {
        *(TRANSACT, CHECKPOINT, SET_CLOCK, INFLATE, *MEMBERS, *SLOW, BACKLOG, *SECURING_KINDS),
        *(kind for needed, _ in APART for kind in needed),
    }
)


def events_of(seed: int, kinds: Collection[str] = KINDS) -> list[Event]:
    """All events of a seed, of these kinds."""
    chance = Random(f"events {seed}")  # noqa: S311
    drawn = {name: kind for name, kind in KINDS.items() if name not in DRAWN_APART}
    weights = [kind.weight * chance.choice(MOODS) * (name in kinds) for name, kind in drawn.items()]
    weights[0] = max(weights[0], KINDS["produce"].weight)
    mean_ms = chance.choice((1, 5, 20, 60))
    at_ms = 0.0
    events = [
        Event(0, "create", (topic, chance.choice((1, 2, 4)), _level(chance)))
        for topic in range(chance.randint(1, TOPICS))
    ]
    for _ in range(chance.randint(EVENTS_MIN, EVENTS_MAX)):
        at_ms += chance.expovariate(1 / mean_ms)
        [name] = chance.choices(list(drawn), weights)
        events.append(Event(20 + int(at_ms), name, KINDS[name].draw(chance)))
    is_few, apart = len(kinds) < len(KINDS), list[Event]()  # A mutant needs them.
    if TRANSACT in kinds:
        found = transactions_of(seed, int(at_ms), _drawn, is_wanted=CHECKPOINT in kinds and is_few)
        apart += [Event(*each) for each in found]
    apart += clock_of(seed, int(at_ms)) if SET_CLOCK in kinds else []
    apart += inflating_of(seed, int(at_ms)) if INFLATE in kinds else []
    apart += members_of(seed) if {*MEMBERS} <= {*kinds} else []
    for drawn_of in (slow_of, secured_of):
        found = drawn_of(seed, int(at_ms), kinds, _drawn, is_wanted=is_few)
        apart += [Event(*each) for each in found]
    for needed, found_of in APART:
        if needed <= {*kinds}:
            found = found_of(seed, int(at_ms), _drawn, is_wanted=is_few)
            apart += [Event(*each) for each in found]
    return sorted([*events, *apart], key=lambda each: each.at_ms)


def _drawn(kind: str, chance: Random) -> Numbers:
    return KINDS[kind].draw(chance)


def clock_of(seed: int, end_ms: int) -> list[Event]:
    """How often a seed's wall clock is set until `end_ms`; in most seeds never."""
    chance = Random(f"clock {seed}")  # noqa: S311
    if seed < CLOCK_FROM or chance.random() >= CLOCK_SHARE:
        return []
    draw = KINDS[SET_CLOCK].draw
    return [
        Event(20 + chance.randint(0, end_ms), SET_CLOCK, draw(chance))
        for _ in range(chance.randint(1, CLOCK_MAX))
    ]


def inflating_of(seed: int, end_ms: int) -> list[Event]:
    """A seed's large records until `end_ms`; most seeds have none."""
    chance = Random(f"inflating {seed}")  # noqa: S311
    if seed < INFLATE_FROM or chance.random() >= INFLATE_SHARE:
        return []
    draw = KINDS[INFLATE].draw
    return [
        Event(20 + chance.randint(0, end_ms), INFLATE, draw(chance))
        for _ in range(chance.randint(1, INFLATE_MAX))
    ]


def members_of(seed: int) -> list[Event]:
    """What the members of a group do in a seed; in most seeds there are none."""
    chance = Random(f"members {seed}")  # noqa: S311
    if seed < MEMBERS_FROM or chance.random() >= MEMBERS_SHARE:
        return []
    events = []
    for number in range(chance.randint(1, MEMBERS_ROUNDS_MAX)):
        at_ms = 20 + number * MEMBERS_ROUND_MS
        events += [Event(at_ms + chance.randint(0, 500), "come", (which,)) for which in range(4)]
        for kind in chance.choices(MEMBERS, (5, 4, 2), k=chance.randint(2, 7)):
            due_ms = at_ms + chance.randint(2_000, MEMBERS_SPREAD_MS)
            events.append(Event(due_ms, kind, KINDS[kind].draw(chance)))
    return events
