"""Cycles are freed while they are young, in bounded steps; nothing looks at all that is held."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from smq.app.process.collector import YOUNG, collect_all, collect_only_young

OLD = 2


@pytest.fixture
def collections() -> Iterator[list[dict[str, int]]]:
    """What the collector did, by generation; afterwards it is as it was."""
    before, found = gc.get_threshold(), list[dict[str, int]]()

    def note(phase: str, facts: dict[str, int]) -> None:
        if phase == "stop":
            found.append(facts)

    collect_only_young()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*before)


def test_the_collector_never_examines_old_objects(
    collections: list[dict[str, int]],
) -> None:
    held: list[Any] = [[i] for i in range(40 * YOUNG)]
    assert len(collections) >= 30, "in small steps"
    assert {facts["generation"] for facts in collections} == {0}
    assert len(held) == 40 * YOUNG


def test_cycles_are_freed_while_they_are_young(collections: list[dict[str, int]]) -> None:
    for _ in range(10 * YOUNG):
        cycle: list[Any] = []
        cycle.append(cycle)
    assert sum(facts["collected"] for facts in collections) >= 8 * YOUNG


def test_collect_all_frees_an_old_cycle(collections: list[dict[str, int]]) -> None:
    cycle: list[Any] = [[] for _ in range(YOUNG)]
    cycle.append(cycle)
    cycle.extend([[] for _ in range(2 * YOUNG)])  # It grows old.
    del cycle
    collections.clear()
    collect_all()
    assert [facts["generation"] for facts in collections] == [OLD]
    assert collections[0]["collected"] >= 1
