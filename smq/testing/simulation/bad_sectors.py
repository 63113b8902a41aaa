"""Pages of the log that the disk cannot read any more, of segments that the page cache has dropped.

What has a part in such a page may be lost, and nothing else; if it can be read again after a few
seconds, nothing at all. Drawn apart from a seed's other events, which stay the same.
"""

import errno
from collections.abc import Callable, Mapping
from random import Random

import numpy as np

from shm.kernels.base.frames import frame_bytes
from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, FRAME_BYTES_AT
from smq.app.process.inheritance import shard_name
from smq.log.damage import known_of
from smq.log.files.bad_pages import PATIENCE_SHORT
from smq.testing.disk import PAGE_BYTES
from smq.testing.simulation.world import World

SECTORS_FAIL = "sectors-fail"
SECTORS_FROM, SECTORS_SHARE = 10001, 0.2
SECTORS_HEAL = "sectors-heal"
HEALING_FROM, HEALING_SHARE = 12001, 0.2
STARTS_ON_BAD = "starts-on-bad-sectors"
STARTS_FROM, STARTS_SHARE = 13001, 0.2
START_HEALS_MS = (20, 100, 400)  # A start is tried again each 30 ms at most.
SHARD_DIES, ALL_DIE, POWER_FAILS = range(3)
BAD_PAGES = (1, 2, 64)
NEXT = 7919  # From one page to another one, far away.
HEALS_MS = (500, 4000)  # Sooner than a page is given up, however short space is.
assert max(HEALS_MS) < PATIENCE_SHORT.wait_ms
FILLING_TIMES, FILLING = 24, (15, 5, 300)  # Partitions, records and bytes that fill a segment.
AFTER_MS = 1500

Numbers = tuple[int, ...]


def sectors_fail(world: World, log: int, which: int) -> None:
    """A page of a segment cannot be read from now on."""
    disks = world.host.disks
    lost = disks[log % len(disks)].lose_a_page(which)
    if lost is not None:
        start, data, at = lost
        world.ledger.lost(partitions_in(data, start, at))


def sectors_heal(world: World, log: int, which: int, ms: int) -> None:
    """A page of a segment cannot be read for a while."""
    disk = world.host.disks[log % len(world.host.disks)]
    if disk.lose_a_page(which, is_passing=True) is not None:
        world.scheduler.after(ms, disk.heal)


def starts_on_bad_sectors(world: World, log: int, which: int, ms: int, how: int) -> None:
    """A shard dies, or all do, or the power fails, and pages of a log cannot be read for a while:
    any page after a power cut, otherwise of what the page cache has dropped."""
    host, lives = world.host, world.lives
    number = log % len(host.disks)
    if how == ALL_DIE and host.is_up:
        lives.go_down(0)
    elif how == POWER_FAILS and host.is_up:
        lives.lose_power(0)
    elif (name := shard_name(host.leader_of(number))) in world.processes:
        lives.kill(name)
    disk = host.disks[number]
    for i in range(BAD_PAGES[which % len(BAD_PAGES)]):
        disk.lose_a_page(which + i * NEXT, is_passing=True, is_cold=how == POWER_FAILS)
    world.scheduler.after(ms, disk.heal)


def partitions_in(data: np.ndarray, start: int, at: int) -> set[int]:
    """The numbers of the partitions that have a batch with a part in the page at data[at], of a
    segment (uint8) that begins at position `start`."""
    numbers = set[int]()
    for place in range(0, min(len(data), at + PAGE_BYTES), FRAME_ALIGNMENT_BYTES):
        known = known_of(data[place:], start + place)
        if known is not None:
            size = int(data[place + FRAME_BYTES_AT : place + FRAME_BYTES_AT + 4].view(np.int32)[0])
            if place + frame_bytes(size) > at:
                numbers.add(known.number)
    return numbers


def draw_sectors_fail(chance: Random) -> Numbers:
    """Of which log, and which page."""
    return chance.randrange(3), chance.randrange(1 << 16)


def draw_sectors_heal(chance: Random) -> Numbers:
    """Of which log, which page, and for how long."""
    return *draw_sectors_fail(chance), chance.choice(HEALS_MS)


def draw_starts_on_bad(chance: Random) -> Numbers:
    """Of which log, which pages, for how long, and what dies."""
    how = chance.choice((SHARD_DIES, ALL_DIE, POWER_FAILS, POWER_FAILS))
    return *draw_sectors_fail(chance), chance.choice(START_HEALS_MS), how


SECTORS_KINDS: Mapping[str, tuple[Callable[[Random], Numbers], Callable[..., None]]] = {
    SECTORS_FAIL: (draw_sectors_fail, sectors_fail),
    SECTORS_HEAL: (draw_sectors_heal, sectors_heal),
    STARTS_ON_BAD: (draw_starts_on_bad, starts_on_bad_sectors),
}


def _filling(chance: Random, at_ms: int) -> list[tuple[int, str, Numbers]]:
    """Records that fill segments before a time."""
    events: list[tuple[int, str, Numbers]] = []
    for _ in range(FILLING_TIMES):
        who = chance.randrange(3), chance.randrange(3)
        events.append((at_ms - chance.randint(0, AFTER_MS), "produce", (*who, *FILLING)))
    return events


def sectors_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """When pages of a seed cannot be read any more, with records that fill segments before,
    readers of them, and what has the log repaired or started; in most seeds never."""
    chance = Random(f"sectors {seed}")  # noqa: S311
    is_drawn = seed >= SECTORS_FROM and chance.random() < SECTORS_SHARE
    if not (is_drawn or is_wanted):
        return []
    at_ms = AFTER_MS + chance.randint(0, end_ms)
    events = _filling(chance, at_ms)
    for kind, times_max in ((SECTORS_FAIL, 3), ("fetch", 6)):
        events += [
            (at_ms + chance.randint(0, AFTER_MS), kind, draw(kind, chance))
            for _ in range(chance.randint(1, times_max))
        ]
    if chance.random() < 0.5:  # A sync: the second row of events.FAILING.
        failing = (chance.randint(-2, 2), 1, errno.EIO, 50)
        events.append((at_ms + chance.randint(0, AFTER_MS), "disk-fails", failing))
    if chance.random() < 0.5:
        kind = chance.choice(("kill", "kill-all", "cut-power"))
        events.append((at_ms + chance.randint(0, AFTER_MS), kind, draw(kind, chance)))
    return events


def healing_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """When pages of a seed cannot be read for a while, with records that fill segments before and
    readers of them; in most seeds never."""
    chance = Random(f"healing {seed}")  # noqa: S311
    is_drawn = seed >= HEALING_FROM and chance.random() < HEALING_SHARE
    if not (is_drawn or is_wanted):
        return []
    at_ms = AFTER_MS + chance.randint(0, end_ms)
    events = _filling(chance, at_ms)
    for kind, count in ((SECTORS_HEAL, 12), ("fetch", 48)):
        events += [
            (at_ms + chance.randint(0, AFTER_MS), kind, draw(kind, chance)) for _ in range(count)
        ]
    return events


def starting_of(
    seed: int, end_ms: int, draw: Callable[[str, Random], Numbers], *, is_wanted: bool
) -> list[tuple[int, str, Numbers]]:
    """When a seed's logs start on pages that cannot be read for a while, with records that fill
    segments before; in most seeds never."""
    chance = Random(f"starting {seed}")  # noqa: S311
    is_drawn = seed >= STARTS_FROM and chance.random() < STARTS_SHARE
    if not (is_drawn or is_wanted):
        return []
    at_ms = AFTER_MS + chance.randint(0, end_ms)
    events = _filling(chance, at_ms)
    for kind, count in ((STARTS_ON_BAD, chance.randint(1, 4)), ("fetch", 6)):
        events += [
            (at_ms + chance.randint(0, AFTER_MS), kind, draw(kind, chance)) for _ in range(count)
        ]
    return events


SECTORS_APART = (
    (frozenset({SECTORS_FAIL}), sectors_of),
    (frozenset({SECTORS_HEAL}), healing_of),
    (frozenset({STARTS_ON_BAD}), starting_of),
)
"""The kinds that each of them needs to be wanted."""
