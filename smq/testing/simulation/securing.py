"""Events of a secured broker: rights, passwords and sessions end while guests write and read.

Drawn apart from a seed's other events, which stay the same. They come in scenes: somebody gets a
right and uses it, the right or the password goes meanwhile, and perhaps a process dies with that.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random

from smq.testing.simulation.intruder import INTRUSIONS
from smq.testing.simulation.ledger import Incarnation
from smq.testing.simulation.people import ALL_GUESTS, GUARDED, GUESTS, LIFETIMES_MS
from smq.testing.simulation.transacting import CREATE_ATTEMPTS, TRANSACT, create_topics
from smq.testing.simulation.world import World

PERMIT, PASSWORD, COME, WRITE, READ, OTHERS_WRITE, CROWD, INTRUDE = (
    "permit",
    "change-password",
    "guest-logs-in",
    "guest-writes",
    "guest-reads",
    "others-write",
    "strangers-come",
    "intrude",
)
SECURED_FROM, SECURED_SHARE = 8001, 1 / 3
SCENES_MAX, SCENE_MS = 5, 1200
DEATHS_SHARE, DEATHS = 0.4, ("kill", "kill", "kill-all", "cut-power")
LEVELS = ("os", "disk", "os")  # Of the guarded topics.
PARTITIONS, MANY = 2, 18  # Of each; of one log: more than a fetch without a session tells.
FREEZE, FREEZES_SHARE = "freeze", 0.5  # Of scenes in which sessions end.
CROWDS_SHARE, CROWDS_MAX = 0.5, 3
INTRUSIONS_SHARE, INTRUSIONS_MAX = 0.5, 25
LIFETIMES = sorted({each for each in LIFETIMES_MS if each})
WAITS_MS = (0, 300, 3000, 3000)
# The numbers of rules (permits.changing_rules): the teller's, then those of each guest's two
# operations: three topics, all topics by their prefix, and a denial of the first.
TELLERS, PREFIX, DENIAL, OF_OPERATION = 0, 3, 4, 5
READS, WRITES = 0, 1
MANY_TOPIC = 2
RULES = 1 + 2 * len(ALL_GUESTS) * OF_OPERATION

Numbers = tuple[int, ...]
Scene = list[tuple[int, str, Numbers]]


def rule_number(guest: int, operation: int, which: int) -> int:
    """The number of a rule: see above."""
    return 1 + (2 * guest + operation) * OF_OPERATION + which


# --- what happens --------------------------------------------------------------------------------


def permit(world: World, which: int, is_there: int) -> None:
    """The administrator creates or deletes a rule."""
    world.guardian.permit(which, is_there=bool(is_there))


def change_password(world: World, guest: int, deletes: int) -> None:
    """A guest gets another password, or none."""
    world.guardian.change_password(guest, deletes=bool(deletes))


def log_in(world: World, guest: int) -> None:
    """A guest's clients leave, and connect to each node anew."""
    for client in (world.writers[guest % len(GUESTS)], world.readers[guest % len(GUESTS)]):
        for connection in list(client.connections.values()):
            connection.broken()
        client.not_before.clear()
        for node in range(1, world.host.config.shards + 1):
            client.connection(node)


def write(world: World, guest: int, topic: int, partition: int) -> None:
    """A guest writes a record."""
    incarnation = _guarded(world, topic)
    if incarnation is not None:
        world.writers[guest % len(world.writers)].write(incarnation, partition)


def read(world: World, guest: int, topic: int, wait_ms: int) -> None:
    """A guest reads a topic; the one of many partitions in sessions."""
    incarnation = _guarded(world, topic)
    if incarnation is not None:
        reader = world.readers[guest % len(world.readers)]
        reader.read(incarnation, wait_ms, is_session=topic % len(GUARDED) == MANY_TOPIC)


def others_write(world: World, client: int, topic: int, partition: int) -> None:
    """A producer that may do everything sends a record."""
    incarnation = _guarded(world, topic)
    if incarnation is not None:
        partition %= incarnation.topic.partition_count
        world.producers[client % len(world.producers)].produce(incarnation, [partition], 1, 10)


def strangers_come(world: World, node: int, count: int) -> None:
    """Many clients of one network come to a node."""
    for each in world.strangers[:count]:
        each.come(1 + node % world.host.config.shards)


def intrude(world: World, which: int, victim: int) -> None:
    """Somebody tries what it has no right to, with what a program with transactions uses."""
    create_topics(world, 1)
    world.intruder.intrude(which, world.transactors[victim % len(world.transactors)])


def _guarded(world: World, topic: int) -> Incarnation | None:
    """A topic of guests, once it exists."""
    topic %= len(GUARDED)
    found = world.ledger.standing(GUARDED[topic])
    if found is None:
        count = MANY * world.host.log_count if topic == MANY_TOPIC else PARTITIONS
        world.administrator.create(GUARDED[topic], count, LEVELS[topic], CREATE_ATTEMPTS)
    return found


SECURING_KINDS: Mapping[str, tuple[Callable[[Random], Numbers], Callable[..., None]]] = {
    PERMIT: (lambda c: (c.randrange(RULES), c.randrange(2)), permit),
    PASSWORD: (lambda c: (c.randrange(len(GUESTS)), c.choice((0, 0, 1))), change_password),
    COME: (lambda c: (c.randrange(len(GUESTS)),), log_in),
    WRITE: (lambda c: (c.randrange(len(ALL_GUESTS)), c.randrange(2), c.randrange(2)), write),
    READ: (lambda c: (c.randrange(len(ALL_GUESTS)), c.randrange(3), c.choice(WAITS_MS)), read),
    OTHERS_WRITE: (lambda c: (c.randrange(3), c.randrange(3), c.randrange(60)), others_write),
    CROWD: (lambda c: (c.randrange(3), c.choice((2, 5, 12))), strangers_come),
    INTRUDE: (lambda c: (c.randrange(len(INTRUSIONS)), c.randrange(2)), intrude),
}
SECURING = frozenset(SECURING_KINDS)
SCENES = SECURING - {INTRUDE}  # What scenes need.


# --- scenes --------------------------------------------------------------------------------------


def _waiting(chance: Random, at_ms: int) -> Scene:
    """A fetch waits when its right goes; others write then."""
    guest, topic = chance.randrange(len(ALL_GUESTS)), chance.choice((0, 1, 2, 2))
    which = chance.choice((topic, topic, PREFIX))
    gone_ms = at_ms + chance.randint(150, 700)
    denies = topic == 0 and chance.random() < 0.3
    gone = (DENIAL, 1) if denies else (which, 0)
    scene: Scene = [
        (at_ms, OTHERS_WRITE, (0, topic, chance.randrange(60))),  # It is created.
        (at_ms, PERMIT, (rule_number(guest, READS, which), 1)),
        (gone_ms, PERMIT, (rule_number(guest, READS, gone[0]), gone[1])),
    ]
    for _ in range(chance.randint(1, 4)):
        due_ms = at_ms + chance.randint(60, gone_ms - at_ms + 200)
        scene.append((due_ms, READ, (guest, topic, chance.choice(WAITS_MS))))
    scene += [
        (gone_ms + chance.randint(-50, 300), OTHERS_WRITE, (i, topic, chance.randrange(60)))
        for i in range(chance.randint(0, 3))
    ]
    if denies:
        scene.append((gone_ms + 600, PERMIT, (rule_number(guest, READS, DENIAL), 0)))
    return scene


def _running(chance: Random, at_ms: int) -> Scene:
    """A guest writes on and on, and its right goes."""
    guest, topic = chance.randrange(len(ALL_GUESTS)), chance.randrange(2)
    which = chance.choice((topic, topic, PREFIX))
    gone_ms = at_ms + chance.randint(100, 500)
    scene: Scene = [
        (at_ms, PERMIT, (rule_number(guest, WRITES, which), 1)),
        (gone_ms, PERMIT, (rule_number(guest, WRITES, which), 0)),
    ]
    for _ in range(chance.randint(5, 25)):
        due_ms = at_ms + chance.randint(0, gone_ms - at_ms + 300)
        scene.append((due_ms, WRITE, (guest, topic, chance.randrange(2))))
    if chance.random() < 0.5:
        scene.append((gone_ms + 400, PERMIT, (rule_number(guest, WRITES, which), 1)))
        scene.append((gone_ms + 600, WRITE, (guest, topic, chance.randrange(2))))
    return scene


def _changing(chance: Random, at_ms: int) -> Scene:
    """A guest's password changes, or the user is deleted, while it writes and reads."""
    guest, topic = chance.randrange(len(GUESTS)), chance.randrange(2)
    changes_ms = at_ms + chance.randint(100, 400)
    scene: Scene = [
        (at_ms, PERMIT, (rule_number(guest, each, PREFIX), 1)) for each in (READS, WRITES)
    ]
    scene.append((changes_ms, PASSWORD, (guest, chance.choice((0, 0, 1)))))
    scene += [
        (changes_ms + chance.randint(-5, 30), COME, (guest,)) for _ in range(chance.randint(0, 3))
    ]
    for _ in range(chance.randint(4, 16)):
        due_ms = at_ms + chance.randint(30, changes_ms - at_ms + 400)
        draw = (WRITE, (guest, topic, 0)), (READ, (guest, topic, chance.choice(WAITS_MS)))
        scene.append((due_ms, *chance.choice(draw)))
    scene.append((changes_ms + 500, PASSWORD, (guest, 0)))
    return scene


def _expiring(chance: Random, at_ms: int) -> Scene:
    """A guest writes, and again when its session may be over, perhaps to a shard that stands still
    when it ends."""
    guest, topic = chance.randrange(len(GUESTS)), chance.randrange(2)
    scene: Scene = [(at_ms, PERMIT, (rule_number(guest, WRITES, PREFIX), 1))]
    for lifetime_ms in (0, *LIFETIMES):
        for _ in range(chance.randint(1, 5)):
            due_ms = at_ms + 50 + lifetime_ms + chance.randint(0, 300)
            scene.append((due_ms, WRITE, (guest, topic, chance.randrange(2))))
    if chance.random() < FREEZES_SHARE:
        due_ms = at_ms + chance.choice(LIFETIMES) + chance.randint(-50, 100)
        scene.append((due_ms, FREEZE, (chance.randrange(6), 500)))
    return scene


def _telling(chance: Random, at_ms: int, draw: Callable[[str, Random], Numbers]) -> Scene:
    """The right to write to the topics of transactions goes, amid some, and comes back."""
    gone_ms = at_ms + chance.randint(50, 400)
    scene: Scene = [(gone_ms, PERMIT, (TELLERS, 0))]
    scene.append((gone_ms + chance.randint(50, 1000), PERMIT, (TELLERS, 1)))
    for _ in range(chance.randint(3, 15)):
        due_ms = at_ms + chance.randint(0, gone_ms - at_ms + 200)
        scene.append((due_ms, TRANSACT, draw(TRANSACT, chance)))
    return scene


def _crowding(chance: Random, at_ms: int) -> Scene:
    """Strangers come, perhaps while the shard stands still, and guests log in beside them."""
    scene: Scene = [
        (at_ms + chance.randint(0, 20), CROWD, SECURING_KINDS[CROWD][0](chance))
        for _ in range(chance.randint(1, 6))
    ]
    scene += [
        (at_ms + chance.randint(0, 40), COME, (chance.randrange(len(GUESTS)),))
        for _ in range(chance.randint(1, 6))
    ]
    if chance.random() < FREEZES_SHARE:
        scene.append((at_ms, FREEZE, (chance.randrange(6), 50)))
    return scene


def _crowds_of(seed: int, end_ms: int) -> list[tuple[int, str, Numbers]]:
    """Crowds of a secured seed, drawn apart: its other events stay the same."""
    chance = Random(f"crowds {seed}")  # noqa: S311
    count = chance.randint(1, CROWDS_MAX) if chance.random() < CROWDS_SHARE else 0
    scenes = [_crowding(chance, 20 + chance.randint(0, end_ms)) for _ in range(count)]
    return [event for scene in scenes for event in scene]


def _intrusions_of(seed: int, end_ms: int, *, is_wanted: bool) -> Scene:
    """What somebody tries in a secured seed, drawn apart, too."""
    chance = Random(f"intrusions {seed}")  # noqa: S311
    if chance.random() >= INTRUSIONS_SHARE and not is_wanted:
        return []
    return [
        (20 + chance.randint(0, end_ms), INTRUDE, SECURING_KINDS[INTRUDE][0](chance))
        for _ in range(chance.randint(5, INTRUSIONS_MAX))
    ]


def secured_of(
    seed: int,
    end_ms: int,
    kinds: Collection[str],
    draw: Callable[[str, Random], Numbers],
    *,
    is_wanted: bool,
) -> list[tuple[int, str, Numbers]]:
    """A seed's scenes, with deaths among them; many seeds have none unless they are wanted."""
    chance = Random(f"securing {seed}")  # noqa: S311
    is_drawn = seed >= SECURED_FROM and chance.random() < SECURED_SHARE
    if not (is_drawn or is_wanted):
        return []
    longest_ms, events = max(end_ms, SCENE_MS), list[tuple[int, str, Numbers]]()
    if INTRUDE in kinds:
        events += _intrusions_of(seed, longest_ms, is_wanted=is_wanted)
    if not {*kinds} >= SCENES:
        return events
    scenes = [_waiting, _running, _changing, _expiring]
    if TRANSACT in kinds:
        scenes.append(partial(_telling, draw=draw))
    deaths = [each for each in DEATHS if each in kinds]
    for _ in range(chance.randint(1, SCENES_MAX)):
        at_ms = 20 + chance.randint(0, longest_ms)
        scene = chance.choice(scenes)(chance, at_ms)
        events += [each for each in scene if each[1] in kinds]
        changes = [each_ms for each_ms, kind, _ in scene if kind in (PERMIT, PASSWORD)]
        if deaths and chance.random() < DEATHS_SHARE:
            kind = chance.choice(deaths)
            due_ms = chance.choice(changes) + chance.randint(0, 60)
            events.append((due_ms, kind, draw(kind, chance)))
    return events + [each for each in _crowds_of(seed, longest_ms) if each[1] in kinds]
