"""The simulator itself: it replays, it finds, it shrinks; and a slice of its seeds."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from shm.kernels.base.words import WORD_WRITTEN
from smq.log.log import Log
from smq.sealer.key_table import KeyTable
from smq.testing.simulation.bad_sectors import HEALING_FROM, SECTORS_FROM, STARTS_FROM
from smq.testing.simulation.disk import Faults, SimulatedDisk
from smq.testing.simulation.events import KINDS, Event, events_of
from smq.testing.simulation.run import (
    Outcome,
    Workplace,
    run_many,
    shortest,
    shrink,
    simulate,
    workplace,
)
from smq.testing.simulation.securing import SECURED_FROM
from smq.testing.simulation.transacting import TRANSACT
from smq.testing.simulation.unsynced import UNSYNCED_FROM
from smq.testing.simulation.writing_back import WRITE_BACK_FROM

SEEDS = 300
BUSY = 26  # A seed in which much happens.
INTERRUPTED = range(1, 600)  # Seeds of which some seal, merge and are floods.
COORDINATOR, SEALER = 0, 1  # By name, among the processes.
TRANSACTING = range(501, 581)  # Seeds of which two in five have transactions.
STARTING = range(36, 62)  # Five found a start that left a ring with nothing to the next one.
COMPACTING = range(85, 100)  # Seeds of which some have compacted topics.
KEPT_ANSWER = 81440  # A coordinator stands still twice, and has answers that it could not send.


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    with workplace() as place:
        yield place


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_the_broker_keeps_its_promises_in_many_simulations(place: Workplace) -> None:
    seeds = range(1, SEEDS + 1)
    failed = [each for each in run_many(seeds, place, os.cpu_count() or 1) if each.why]
    assert not failed, "\n".join(f"make sim SEED={each.seed}: {each.why}" for each in failed)


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_transactions_are_whole_in_many_simulations(place: Workplace) -> None:
    seeds = [each for each in TRANSACTING if any(e.kind == TRANSACT for e in events_of(each))]
    assert len(seeds) > len(TRANSACTING) // 4
    failed = [each for each in run_many(seeds, place, os.cpu_count() or 1) if each.why]
    assert not failed, "\n".join(f"make sim SEED={each.seed}: {each.why}" for each in failed)


@pytest.mark.sim
@pytest.mark.timeout(300)
def test_a_compaction_that_loses_the_last_record_of_a_key_is_found(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = KeyTable.last

    def all_but_one(table: KeyTable, rows: pa.Table) -> np.ndarray:
        kept = whole(table, rows)
        kept[np.flatnonzero(kept)[:1]] = False
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(KeyTable, "last", all_but_one)
        failed = [seed for seed in COMPACTING if "is gone" in simulate(seed, place).why]
    assert failed
    assert not simulate(failed[0], place).why


@pytest.mark.sim
def test_a_member_counts_on_no_answer_that_a_stopped_coordinator_kept(place: Workplace) -> None:
    assert not simulate(KEPT_ANSWER, place).why


def interrupted(seed: int) -> list[Event]:
    """The records and readers of a seed, and a death every now and then: of the sealer, or of all
    by a power cut, when the sealer has made some calls."""
    chance = Random(seed)
    quiet = [each for each in events_of(seed) if each.kind in {"create", "produce", "fetch"}]
    deaths = []
    for at_ms in range(500, 4000, 350):
        fuse = chance.randint(1, 60)
        ends = ("kill", (SEALER, fuse, -1)), ("cut-power", (SEALER, fuse, 0, -1))
        deaths.append(Event(at_ms, *chance.choice(ends)))
    return sorted([*quiet, *deaths], key=lambda each: each.at_ms)


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_deaths_amid_floods_merges_and_hurried_sealing_lose_nothing(place: Workplace) -> None:
    missing = {
        *product(("is", "are"), ("seal", "merge")),  # One is killed; all are killed.
        *product(("is",), ("hurried sealing", "slowed")),
    }
    for seed in INTERRUPTED:
        outcome = simulate(seed, place, interrupted(seed))
        assert not outcome.why, f"seed {seed}: {outcome.why}"
        for line in outcome.trail:
            who, is_death, amid = line.partition(" killed amid ")
            if is_death:
                missing -= set(product(who.split()[-1:], amid.split(", ")))
        if not missing:
            return
    raise AssertionError(f"no death came amid {missing}")


def dying_at_starts(seed: int) -> list[Event]:
    """The records and readers of a seed; all die every now and then, and again a shard as it
    starts."""
    chance = Random(f"starts {seed}")
    quiet = [each for each in events_of(seed) if each.kind in {"create", "produce", "fetch"}]
    deaths = []
    for at_ms in range(300, 4000, 300):
        never, soon = 1_000_000, chance.randint(0, 25)
        deaths.append(Event(at_ms - 1, "kill", (SEALER, never, soon)))
        deaths.append(Event(at_ms, chance.choice(("kill-all", "cut-power")), (0, 0, 0, -1)))
    return sorted([*quiet, *deaths], key=lambda each: each.at_ms)


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_deaths_of_shards_that_start_in_fresh_memory_lose_nothing(place: Workplace) -> None:
    starts = 0
    for seed in STARTING:
        outcome = simulate(seed, place, dying_at_starts(seed))
        assert not outcome.why, f"seed {seed}: {outcome.why}"
        starts += sum("killed while it starts" in line for line in outcome.trail)
    assert starts > len(STARTING), "few died as they started"


def dying_at_ends(seed: int) -> list[Event]:
    """Transactions, and deaths of the coordinator, or of all, after few of its calls."""
    chance = Random(f"ends {seed}")
    draw, happen = KINDS[TRANSACT].draw, list[Event]()
    happen += [Event(20 + 15 * number, TRANSACT, draw(chance)) for number in range(200)]
    for at_ms in range(200, 3000, 100):
        fuse = chance.randint(0, 12)
        ends = ("kill", (COORDINATOR, fuse, -1)), ("kill-all", (COORDINATOR, fuse, 0, -1))
        happen.append(Event(at_ms, *chance.choice(ends)))
    return sorted(happen, key=lambda each: each.at_ms)


@pytest.mark.sim
@pytest.mark.timeout(600)
def test_deaths_between_the_answer_to_a_commit_and_its_markers_tear_nothing(
    place: Workplace,
) -> None:
    missing = {"coordinator is", "processes are"}
    for seed in range(1, 5):
        outcome = simulate(seed, place, dying_at_ends(seed))
        assert not outcome.why, f"seed {seed}: {outcome.why}"
        for line in outcome.trail:
            who, _, amid = line.partition(" killed amid ")
            if "an answered commit without its markers" in amid:
                missing.discard(" ".join(who.split()[-2:]))
    assert not missing, "no death came there"


@pytest.mark.parametrize("seed", [BUSY, 28])
def test_a_seed_replays_exactly(place: Workplace, seed: int) -> None:
    first, again = (simulate(seed, place, tells_details=True) for _ in range(2))
    assert first.trail == again.trail
    assert first.acks == again.acks > 0


@pytest.mark.sim
@pytest.mark.timeout(300)
def test_a_seed_replays_exactly_in_a_process_whose_hashes_are_others() -> None:
    command = [sys.executable, "-m", "smq.testing.simulation.run", "--digest", "--seeds", "20"]
    digests = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_the_events_of_a_seed_are_data_and_of_known_kinds() -> None:
    events = events_of(BUSY)
    assert events == events_of(BUSY) != events_of(BUSY + 1)
    assert [each.at_ms for each in events] == sorted(each.at_ms for each in events)
    assert {each.kind for each in events} <= set(KINDS)
    firsts = (UNSYNCED_FROM, WRITE_BACK_FROM, SECURED_FROM, SECTORS_FROM, HEALING_FROM, STARTS_FROM)
    seeds = (*range(400, 600), *(first + i for first in firsts for i in range(100)))
    drawn = {each.kind for seed in seeds for each in events_of(seed)}
    assert drawn == set(KINDS)


def test_shrinking_keeps_what_is_needed_and_nothing_else() -> None:
    needed = {3, 41, 90}
    kept = shrink(list(range(100)), lambda some: needed <= set(some), 1000)
    assert kept == sorted(needed)


def write_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a log say that it has written what it has not: a defect to be found."""
    write = Log.write

    def forgetful(self: Log) -> bool:
        end = self.tail
        if end % 5 == 0 and self.failed is None:
            self.words[WORD_WRITTEN] = end
            return True
        return write(self)

    monkeypatch.setattr(Log, "write", forgetful)


def test_a_defect_is_found_and_its_events_become_few(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_less(monkeypatch)
    outcomes = (simulate(seed, place) for seed in range(1, 60))
    found = next(each for each in outcomes if each.why)
    kept = shortest(found, place)
    events = events_of(found.seed)
    assert 0 < len(kept) < len(events)
    assert simulate(found.seed, place, [events[i] for i in kept]).kind == found.kind


def test_a_broker_that_does_not_lose_anything_passes(place: Workplace) -> None:
    events = [
        Event(0, "create", (0, 2, 2)),
        Event(300, "produce", (0, 0, 3, 5, 100)),
        Event(340, "fetch", (0, 1, 200, 1, 12)),
        Event(360, "commit", (0, 0, 1)),
        Event(500, "cut-power", (0, 0, 1, -1)),
        Event(900, "produce", (0, 0, 3, 5, 100)),
    ]
    outcome: Outcome = simulate(1, place, events)
    assert outcome.why == ""
    assert outcome.acks == 4


@pytest.mark.parametrize(("first", "second"), [("write_back", "sync"), ("sync", "write_back")])
def test_each_descriptor_of_a_simulated_file_hears_of_an_error_once(
    tmp_path: Path, first: str, second: str
) -> None:
    disk = SimulatedDisk(tmp_path, faults := Faults(), Random(1))
    one, other = disk.create(tmp_path / "0.wal", 4096), disk.open(tmp_path / "0.wal")

    def write_out(method: str, fd: int) -> bool:
        """Whether it succeeds."""
        try:
            disk.sync(fd) if method == "sync" else disk.write_back(fd, 4096)
        except OSError:
            return False
        return True

    disk.write(one, memoryview(b"x"), 0)
    faults.failing[first] = errno.EIO
    assert not write_out(first, one)
    faults.failing.clear()
    assert write_out(first, one)
    assert [write_out(second, other) for _ in range(2)] == [False, True]
    disk.drop_descriptors()
