"""Known defects of the data path, reintroduced one by one: the simulator must find each.

A mutant (`defects/`) replaces methods by versions without the fix. Its runs only have events of the
kinds that its defect needs, and more of them than a run of all kinds. Each is searched for twice:
with the assertions of `invariants()`, and without them, by outside effects alone.

python -m smq.testing.simulation.mutants [--seeds 1000] [--first 1] [--only long-poll-stays]
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from smq.testing.simulation.defects import (
    acks,
    bad_pages,
    checkpoints,
    checks,
    clocks,
    cold_reads,
    compactions,
    footprints,
    groups,
    long_polls,
    rights,
    stores,
    sweeps,
    transactions,
    undecided,
)
from smq.testing.simulation.defects.mutant import Change, Mutant
from smq.testing.simulation.events import events_of
from smq.testing.simulation.run import Outcome, Workplace, say, simulate, workplace

SEEDS_MAX = 1000

MUTANTS: tuple[Mutant, ...] = (
    *clocks.MUTANTS,
    *checkpoints.MUTANTS,
    *acks.MUTANTS,
    *long_polls.MUTANTS,
    *checks.MUTANTS,
    *transactions.MUTANTS,
    *groups.MUTANTS,
    *stores.MUTANTS,
    *sweeps.MUTANTS,
    *cold_reads.MUTANTS,
    *compactions.MUTANTS,
    *undecided.MUTANTS,
    *footprints.MUTANTS,
    *bad_pages.MUTANTS,
    *rights.MUTANTS,
)


class Detection(NamedTuple):
    """After how many seeds the defect was found; None if it was not."""

    seeds: int
    outcome: Outcome | None


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Plant the defect within the block."""
    before = [Change(each.owner, each.name, vars(each.owner)[each.name]) for each in mutant.changes]
    for change in mutant.changes:
        setattr(change.owner, change.name, change.method)
    try:
        yield
    finally:
        for change in before:
            setattr(change.owner, change.name, change.method)


def look_for(
    mutant: Mutant, seeds: Iterable[int], place: Workplace, *, asserts: bool = True
) -> Detection:
    """Run seeds until one fails."""
    count = 0
    with planted(mutant):
        for count, seed in enumerate(seeds, 1):
            outcome = simulate(seed, place, events_of(seed, mutant.kinds), asserts=asserts)
            if outcome.why:
                return Detection(count, outcome)
    return Detection(count, None)


def told(found: Detection) -> str:
    """A table cell."""
    if found.outcome is None:
        return f"not in {found.seeds} seeds"
    first, *where = found.outcome.why.splitlines()
    by = ", by an assertion" if where and " invariants" in where[-1] else ""
    return f"{found.seeds} seeds (seed {found.outcome.seed}{by}): {first}"


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seeds", type=int, default=SEEDS_MAX, help="seeds for each mutant, at most"
    )
    parser.add_argument("--first", type=int, default=1, help="from this one on")
    parser.add_argument("--only", help="only the mutant of this name")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    missed = 0
    with workplace() as place:
        for mutant in MUTANTS:
            if options.only not in {None, mutant.name}:
                continue
            say(f"{mutant.name}: {mutant.defect}")
            for asserts in (True, False):
                found = look_for(mutant, seeds, place, asserts=asserts)
                missed += found.outcome is None
                say(f"   {'all checks' if asserts else 'clients only':12}  {told(found)}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
