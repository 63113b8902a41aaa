"""Whose query is next."""

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given, strategies as st

from smq.app.front import query_line
from smq.app.front.query_line import QueryLine, QueryTurn


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def come(*turns: QueryTurn[str]) -> list[bool | None]:
    """What has come of each; None: it waits."""
    return [each.come.result() if each.come.done() else None for each in turns]


def test_a_user_who_has_just_had_a_query_waits_behind_others() -> None:
    """Two who queried without a pause kept it from everybody."""

    async def test() -> None:
        line = QueryLine[str](1, 4)
        mallory = line.join("mallory")
        again, bob = line.join("mallory"), line.join("bob")
        assert come(mallory, again, bob) == [True, None, None]
        line.leave(mallory)
        assert come(again, bob) == [None, True]
        carol = line.join("carol")
        line.leave(bob)
        assert come(again, carol) == [None, True]
        line.leave(carol)
        assert come(again) == [True]
        line.invariants()

    in_loop(test)


def test_a_full_line_turns_out_the_user_who_had_a_query_last() -> None:
    async def test() -> None:
        line = QueryLine[str](1, 2)
        for each in ("eve", "mallory"):
            line.leave(line.join(each))
        running = line.join("root")
        mallory, eve = line.join("mallory"), line.join("eve")
        bob = line.join("bob")
        assert come(running, mallory, eve, bob) == [True, False, None, None]
        again = line.join("mallory")
        assert come(again, eve, bob) == [False, None, None]
        line.leave(again)
        line.leave(running)
        assert come(eve, bob) == [None, True]
        line.leave(eve)
        line.leave(bob)
        line.invariants()

    in_loop(test)


def test_users_who_have_had_none_come_in_order() -> None:
    async def test() -> None:
        line = QueryLine[str](1, 2)
        turns = [line.join(each) for each in "abcd"]
        assert come(*turns) == [True, None, None, False]
        line.leave(turns[0])
        assert come(*turns[1:3]) == [True, None]

    in_loop(test)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 9))))
def test_a_line_holds_its_invariant(steps: list[tuple[str, int]]) -> None:
    async def test() -> None:
        line, here = QueryLine[str](2, 3), list[QueryTurn[str]]()
        for user, which in steps:
            if which < len(here):
                line.leave(here.pop(which))
            else:
                here.append(line.join(user))
            line.invariants()
        for each in here:
            line.leave(each)
            line.invariants()
        assert come(line.join("a"), line.join("b")) == [True, True]

    before, query_line.KNOWN_MAX = query_line.KNOWN_MAX, 3
    try:
        in_loop(test)
    finally:
        query_line.KNOWN_MAX = before
