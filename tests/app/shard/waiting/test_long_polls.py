"""Polls by themselves: which are examined, and how each ends."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gateway.context import Wait
from smq.app.process.clock import monotonic_ns
from smq.app.shard.waiting.long_polls import LOOKS_A_TURN, LongPolls
from tests.app.fake_peers import TidyLoop, turn_until

HERE, THERE = (0, 1), (0, 2)
SLOTS, FEW_MAX = 200, 64


class Asked:
    """A wait that answers once it `has_enough`, and notes what it was asked."""

    def __init__(self, *places: tuple[int, int], timeout_ms: int = 60_000) -> None:
        self.questions: list[object] = []
        self.answers: list[Any] = []
        self.has_enough = False
        self.places: Sequence[tuple[int, int]] = places
        self.wait = Wait(self.codes, timeout_ms, self.attempt, self.moved)
        self.wait.due_ns = monotonic_ns() + timeout_ms * 1_000_000

    def codes(self) -> list[int] | np.ndarray:
        codes = [log << 32 | slot for log, slot in self.places]
        return np.array(sorted(codes)) if len(codes) > FEW_MAX else codes

    def attempt(self, *, is_last: bool) -> str | None:
        self.questions.append("last" if is_last else "again")
        return "all" if self.has_enough or is_last else None

    def moved(self, codes: Sequence[int]) -> str | None:
        self.questions.append([(code >> 32, code & 0xFFFFFFFF) for code in codes])
        return "enough" if self.has_enough else None


def test_only_polls_on_places_that_moved_are_asked_and_once_a_turn() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    both, other = Asked(HERE, THERE), Asked(THERE)
    for each in (both, other):
        polls.add(each.wait, each.answers.append)
    polls.moved({HERE})
    assert (both.questions, other.questions) == ([[HERE]], [])
    both.has_enough = True
    polls.moved([HERE, THERE])
    assert both.questions[1:] == [[HERE, THERE]]
    assert (both.answers, other.answers) == (["enough"], [])
    polls.moved([HERE, THERE])
    assert len(both.questions) == 2
    loop.close()


def test_a_poll_is_settled_once_at_the_end_of_its_time() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    asked = Asked(HERE, timeout_ms=1)
    polls.add(asked.wait, asked.answers.append)
    turn_until(loop, lambda: bool(asked.answers))
    polls.moved([HERE])
    polls.look_again()
    assert (asked.questions, asked.answers) == (["last"], ["all"])
    loop.close()


def test_a_changed_catalog_asks_all_and_a_dropped_poll_is_asked_no_more() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    asked, dropped = Asked(HERE), Asked(HERE)
    polls.add(asked.wait, asked.answers.append)
    polls.drop(polls.add(dropped.wait, dropped.answers.append))
    polls.look_again()
    assert (asked.questions, dropped.questions) == (["again"], [])
    assert not asked.answers
    loop.close()


def test_a_poll_waits_where_its_partitions_are_once_their_topic_is_created_again() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    asked, other = Asked(HERE), Asked(HERE)
    poll = polls.add(asked.wait, asked.answers.append)
    polls.add(other.wait, other.answers.append)
    asked.places = (THERE,)
    with pytest.raises(AssertionError, match="have moved"):
        polls.invariants()
    polls.look_again()
    polls.invariants()
    polls.moved([HERE])
    assert (asked.questions, other.questions) == (["again"], ["again", [HERE]])
    polls.moved([THERE])
    assert asked.questions == ["again", [THERE]]
    polls.drop(poll)
    polls.invariants()
    assert np.flatnonzero(polls.watched).tolist() == [1]
    loop.close()


def test_a_changed_catalog_asks_a_bounded_part_of_them_a_turn() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    asked = [Asked(HERE) for _ in range(LOOKS_A_TURN)]
    kept = [polls.add(each.wait, each.answers.append) for each in asked]
    polls.look_again()
    counts = [sum(bool(each.questions) for each in asked)]
    polls.drop(kept[-1])
    while counts[-1] < len(asked) - 1:
        polls.invariants()
        loop.run_once(0.01)
        counts.append(sum(bool(each.questions) for each in asked))
        assert 0 < counts[-1] - counts[-2] <= LOOKS_A_TURN // 2, "two words a poll"
    assert len(counts) > 1
    assert {len(each.questions) for each in asked[:-1]} == {1}
    loop.close()


def test_polls_that_come_outdated_look_behind_those_that_are() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    polls.looks_a_turn = 1
    first, second, late, current = Asked(HERE), Asked(HERE), Asked(HERE), Asked(HERE)
    for each in (first, second):
        polls.add(each.wait, each.answers.append)
    polls.look_again()
    poll = polls.add(late.wait, late.answers.append)
    polls.add(current.wait, current.answers.append)
    polls.outdate([poll])
    polls.invariants()
    assert (second.questions, late.questions) == ([], [])
    turn_until(loop, lambda: bool(late.questions))
    assert [each.questions for each in (first, second, current)] == [["again"], ["again"], []]
    polls.outdate([poll])
    assert late.questions == ["again", "again"]
    loop.close()


def test_a_poll_that_is_outdated_starts_again_before_it_tells_anything() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    polls.looks_a_turn = 1
    first, second, third = Asked(HERE), Asked(HERE), Asked(THERE)
    for each in (first, second, third):
        polls.add(each.wait, each.answers.append)
    polls.look_again()
    assert (first.questions, second.questions) == (["again"], [])
    second.has_enough = True
    polls.moved([HERE])
    assert (first.questions, second.questions) == (["again", [HERE]], ["again"])
    assert second.answers == ["all"]
    polls.look_again()
    turn_until(loop, lambda: bool(third.questions))
    assert first.questions == ["again", [HERE]], "who waits for longer comes first"
    turn_until(loop, lambda: len(first.questions) == 3)
    assert (first.questions[-1], third.questions) == ("again", ["again"])
    polls.invariants()
    loop.close()


def test_a_poll_of_many_partitions_gets_those_that_have_moved() -> None:
    loop = TidyLoop()
    polls = LongPolls(loop, SLOTS)
    wide = Asked(*((0, slot) for slot in range(FEW_MAX + 1, 0, -1)))
    few = Asked((0, 5), (1, 5))
    for each in (wide, few):
        polls.add(each.wait, each.answers.append)
    polls.invariants()
    polls.moved([(0, 0), (0, SLOTS - 1), (2, 5)])
    assert wide.questions == few.questions == []
    polls.moved([(0, 5), (0, FEW_MAX + 1), (0, FEW_MAX + 2)])
    assert (wide.questions, few.questions) == ([[(0, 5), (0, FEW_MAX + 1)]], [[(0, 5)]])
    wide.places = [(0, 7)]
    polls.look_again()
    polls.invariants()
    wide.has_enough = few.has_enough = True
    polls.moved([(0, 5), (0, 7)])
    assert (wide.answers, few.answers) == (["enough"], ["enough"])
    polls.invariants()
    assert not polls.watched.any()
    loop.close()


def test_a_poll_that_has_ended_is_freed_without_a_collector() -> None:
    """Shards collect garbage once a second: ten thousand polls would hold up everybody."""
    loop = TidyLoop()
    polls, connection, asked = LongPolls(loop, SLOTS), set(), Asked(HERE)

    def wait() -> weakref.ref[Any]:
        def settle(_: object) -> None:
            connection.discard(poll)

        poll = polls.add(asked.wait, settle)
        connection.add(poll)
        return weakref.ref(settle)

    gc.disable()
    try:
        settle, asked.has_enough = wait(), True
        assert settle() is not None
        polls.moved([HERE])
        assert settle() is None
    finally:
        gc.enable()
