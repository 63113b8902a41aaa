"""The simulator finds the defects of the review when their mends are taken out one by one."""

from collections.abc import Iterator

import pytest

from smq.app.shard.requests.acks import Acks
from smq.testing.simulation.defects.mutant import Mutant
from smq.testing.simulation.events import events_of
from smq.testing.simulation.mutants import (
    MUTANTS,
    SEEDS_MAX,
    Detection,
    look_for,
    planted,
    told,
)
from smq.testing.simulation.run import Outcome, Workplace, simulate, workplace


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    with workplace() as place:
        yield place


@pytest.mark.sim
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_mutant_is_found_and_only_the_mutant_fails(place: Workplace, mutant: Mutant) -> None:
    seeds = (mutant.seed, *range(1, SEEDS_MAX + 1))  # A change may have moved it.
    found = look_for(mutant, seeds, place)
    assert found.outcome is not None, told(found)
    assert not found.outcome.why.startswith(("TypeError", "AttributeError", "NameError")), told(
        found
    )
    seed = found.outcome.seed
    assert simulate(seed, place, events_of(seed, mutant.kinds)).why == ""
    assert simulate(seed, place).why == ""


def test_a_mutant_stands_for_one_run_only() -> None:
    [mutant] = [each for each in MUTANTS if each.name == "no-sync-for-a-repeat"]
    whole = Acks._want_syncs
    with planted(mutant):
        assert Acks._want_syncs is not whole
    assert Acks._want_syncs is whole


def test_every_mutant_changes_methods_that_exist() -> None:
    changes = [change for mutant in MUTANTS for change in mutant.changes]
    assert all(callable(vars(change.owner)[change.name]) for change in changes)
    names = [each.name for each in MUTANTS]
    assert len(names) == len(set(names))


def test_the_report_of_a_defect_names_its_finder() -> None:
    by_assertion = Outcome(
        7, "", "AssertionError: no\n  acks.py:1 write\n  acks.py:9 invariants", [], 0
    )
    by_client = Outcome(8, "", "Broken: gone\n  rules.py:9 claimed_is_there", [], 0)
    assert (
        told(Detection(7, by_assertion)) == "7 seeds (seed 7, by an assertion): AssertionError: no"
    )
    assert told(Detection(3, by_client)) == "3 seeds (seed 8): Broken: gone"
    assert told(Detection(9, None)) == "not in 9 seeds"
