"""Runs of a simulation: one seed, a shorter list of events that fails alike, many seeds at once.

python -m smq.testing.simulation.run --seed 7 [--keep 0,3,9]
python -m smq.testing.simulation.run --seeds 10000 [--first 1]
python -m smq.testing.simulation.run --digest --seeds 50      what any two processes print alike
"""

import argparse
import gc
import hashlib
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

from smq.app.process import clock as app_clock
from smq.testing.simulation.events import KINDS, Event, events_of
from smq.testing.simulation.host import new_store
from smq.testing.simulation.people import cheap_passwords
from smq.testing.simulation.rules import RULES
from smq.testing.simulation.sdk import system
from smq.testing.simulation.securing import SECURING
from smq.testing.simulation.world import World

MEMORY_DIRECTORY = Path("/dev/shm")  # noqa: S108  (A disk would only slow it down.)
FRAMES_SAID = 6
SHRINK_RUNS_MAX = 400
TEMPLATES = {False: "template", True: "secured"}
CHUNK = 10  # Seeds per task of a worker.

T = TypeVar("T")


class Outcome(NamedTuple):
    """A run's result: `why` is empty on success; `kind` distinguishes failures."""

    seed: int
    kind: str
    why: str
    trail: list[str]
    acks: int


class Workplace:
    """The working directory of simulations."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._count = 0
        for secures, template in TEMPLATES.items():
            new_store(directory / template, secures=secures)

    def fresh(self, *, secures: bool = False) -> Path:
        """A directory with a new store; `secures`: with users and access rules."""
        self._count += 1
        fresh = self.directory / f"{os.getpid()}-{self._count}"
        shutil.copytree(self.directory / TEMPLATES[secures], fresh)
        return fresh


@contextmanager
def workplace() -> Iterator[Workplace]:
    """A workplace, in memory if possible."""
    home = MEMORY_DIRECTORY if MEMORY_DIRECTORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="smq-simulation-", dir=home) as directory:
        yield Workplace(Path(directory))


def simulate(
    seed: int,
    place: Workplace,
    events: Sequence[Event] | None = None,
    *,
    tells_details: bool = False,
    asserts: bool = True,
) -> Outcome:
    """Run the seed's events, or only these. `asserts`: check invariants() after each turn."""
    chosen = events_of(seed) if events is None else list(events)
    secures = any(each.kind in SECURING for each in chosen)
    with system.installed():
        world = World(seed, place.fresh(secures=secures), secures=secures)
    world.tells_details, world.scheduler.asserts = tells_details, asserts
    operator = StringIO()
    kind = why = ""
    try:
        replaced = app_clock.replaced(world.clock.wall_ns, world.clock.monotonic_ns)
        with replaced, system.installed(), redirect_stderr(operator), cheap_passwords():
            app_clock.begin_at(app_clock.wall_ms())  # As a broker's first start does.
            play(world, chosen)
    except Exception as reason:  # noqa: BLE001  (Any failure is what we search for.)
        frames = traceback.extract_tb(reason.__traceback__)[-FRAMES_SAID:]
        where = [f"  {each.filename}:{each.lineno} {each.name}" for each in frames]
        kind = f"{type(reason).__name__} {frames[-1].name}"
        why = "\n".join([f"{type(reason).__name__}: {reason}", *where])
        world.say_notices()
        world.trail += operator.getvalue().splitlines()
    finally:
        world.say(f"over after {world.scheduler.rounds} rounds")
        with system.installed():
            world.close()
    return Outcome(seed, kind, why, world.trail, world.ledger.acks)


def play(world: World, events: Sequence[Event]) -> None:
    """From the start to the rules. Raises any failure."""
    world.begin()
    for event in events:
        world.wait_until(event.at_ms)
        world.say(str(event))
        KINDS[event.kind].happen(world, *event.numbers)
    world.end()
    for rule in RULES:
        rule(world)


def shrink(items: list[T], fails: Callable[[list[T]], bool], runs_max: int) -> list[T]:
    """A shorter list that still fails: delete parts, large ones first (delta debugging)."""
    size, runs = max(1, len(items) // 2), 0
    while runs < runs_max:
        at, has_shrunk = 0, False
        while at < len(items) and runs < runs_max:
            shorter = items[:at] + items[at + size :]
            runs += 1
            if fails(shorter):
                items, has_shrunk = shorter, True
            else:
                at += size
        if size == 1 and not has_shrunk:
            break
        size = max(1, size // 2)
    return items


def shortest(outcome: Outcome, place: Workplace) -> list[int]:
    """The events of a seed that suffice for the same failure."""
    events = events_of(outcome.seed)

    def fails(kept: list[int]) -> bool:
        again = simulate(outcome.seed, place, [events[i] for i in kept])
        return again.kind == outcome.kind

    return shrink(list(range(len(events))), fails, SHRINK_RUNS_MAX)


# --- many ----------------------------------------------------------------------------------------

_place: Workplace  # In a worker: the parent's, with its own names.


def _try(seed: int) -> Outcome:
    outcome = simulate(seed, _place)
    return outcome if outcome.why else outcome._replace(trail=[])


def run_many(seeds: Sequence[int], place: Workplace, workers: int) -> Iterator[Outcome]:
    """Run each seed in one of the worker processes, forked from this one after compilation."""
    global _place  # noqa: PLW0603  (What the forks find.)
    _place = place
    simulate(seeds[0], place)
    gc.freeze()  # Else each collection looks at all that is imported: a quarter of the time.
    if workers == 1:
        yield from map(_try, seeds)
        return
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        yield from pool.map(_try, seeds, chunksize=CHUNK)


def say(*lines: str) -> None:
    """Print to the process that started this one."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def tell_failure(outcome: Outcome, place: Workplace, *, shrinks: bool) -> None:
    """Report what failed, why, and how to reproduce it."""
    say(f"seed {outcome.seed} failed: {outcome.why}")
    if shrinks:
        kept = shortest(outcome, place)
        events = events_of(outcome.seed)
        short = simulate(outcome.seed, place, [events[i] for i in kept], tells_details=True)
        say(f"{len(kept)} of its {len(events)} events are enough:", *short.trail, short.why)
        say(f"again: make sim SEED={outcome.seed} KEEP={','.join(map(str, kept))}")
    say(f"again, whole: make sim SEED={outcome.seed}")


def run_one(seed: int, keep: str, place: Workplace) -> int:
    """Run one seed with a full report; returns the number of failures."""
    events = events_of(seed)
    chosen = [events[int(i)] for i in keep.split(",")] if keep else events
    outcome = simulate(seed, place, chosen, tells_details=True)
    say(*outcome.trail)
    if not outcome.why:
        say(f"seed {seed}: {outcome.acks} batches acknowledged, all is well")
        return 0
    tell_failure(outcome, place, shrinks=not keep)
    return 1


def digest(seeds: Sequence[int], place: Workplace) -> str:
    """A digest of all that happens in these runs: it must not depend on a process's hash seed."""
    seen = hashlib.sha256()
    for seed in seeds:
        outcome = simulate(seed, place, tells_details=True)
        told = "\n".join([*outcome.trail, outcome.why, str(outcome.acks)])
        seen.update(told.replace(str(place.directory), "").encode())
    return seen.hexdigest()


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="run this seed and print what happens")
    parser.add_argument("--keep", default="", help="only these of its events, by their numbers")
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="from this one on")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--digest", action="store_true", help="print a hash of what happens")
    options = parser.parse_args()
    failed = 0
    with workplace() as place:
        if options.seed is not None:
            sys.exit(run_one(options.seed, options.keep, place))
        seeds = range(options.first, options.first + options.seeds)
        if options.digest:
            say(digest(seeds, place))
            return
        for outcome in run_many(seeds, place, options.workers):
            if outcome.why:
                failed += 1
                tell_failure(outcome, place, shrinks=not options.no_shrink)
    say(f"{options.seeds} seeds, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
