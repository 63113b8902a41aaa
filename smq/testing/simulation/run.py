"""Runs of a simulation: one seed, a shorter list of events that fails alike, many seeds at once.

python -m smq.testing.simulation.run --seed 7 [--keep 0,3,9]
python -m smq.testing.simulation.run --seeds 10000
"""

import argparse
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

from smq.app import clock as app_clock
from smq.testing.simulation.events import Event, events_of
from smq.testing.simulation.host import new_store
from smq.testing.simulation.world import World

MEMORY_DIRECTORY = Path("/dev/shm")  # noqa: S108  (A disk would only make it slower.)


class Outcome(NamedTuple):
    """How a run has ended: `why` is empty if all is well."""

    seed: int
    why: str
    trail: list[str]
    rounds: int
    acks: int


class Workplace:
    """Where simulations have their files."""

    def __init__(self) -> None:
        home = MEMORY_DIRECTORY if MEMORY_DIRECTORY.is_dir() else None
        self._directory = Path(tempfile.mkdtemp(prefix="smq-simulation-", dir=home))
        self._count = 0
        new_store(self._directory / "template")

    def directory(self) -> Path:
        """A fresh one, with a store that was never used."""
        self._count += 1
        fresh = self._directory / f"{os.getpid()}-{self._count}"
        shutil.copytree(self._directory / "template", fresh)
        return fresh

    def close(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._directory)


def simulate(seed: int, workplace: Workplace, events: list[Event] | None = None) -> Outcome:
    """One run, of these events or of all of the seed's."""
    chosen = events_of(seed) if events is None else events
    world = World(seed, chosen, workplace.directory())
    why = ""
    try:
        with app_clock.replaced(world.clock.wall_ns, world.clock.monotonic_ns):
            world.run()
    except Exception as reason:  # noqa: BLE001  (Whatever it is, it is what we look for.)
        frames = traceback.extract_tb(reason.__traceback__)
        where = "\n".join(f"  {each.filename}:{each.lineno} {each.name}" for each in frames[-6:])
        why = f"{type(reason).__name__}: {reason}\n{where}"
    finally:
        world.close()
    return Outcome(seed, why, world.trail, world.rounds, world.ledger.acks)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    workplace = Workplace()
    try:
        if options.seed is not None:
            outcome = simulate(options.seed, workplace)
            sys.stdout.write("\n".join([*outcome.trail, outcome.why]) + "\n")
            return
        failed = 0
        for seed in range(options.seeds):
            outcome = simulate(seed, workplace)
            if outcome.why:
                failed += 1
                sys.stdout.write(f"seed {seed}: {outcome.why}\n")
        sys.stdout.write(f"{options.seeds} seeds, {failed} failed\n")
    finally:
        workplace.close()


if __name__ == "__main__":
    main()
