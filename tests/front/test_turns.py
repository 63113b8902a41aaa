"""Who has a step of the front's loop, and when."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from smq.front import turns
from smq.front.turns import (
    KNOWN_STEPS_A_TURN,
    STEPS_A_TURN,
    Line,
    PeerStanding,
    Turns,
    standing_of,
)


def taken(line: Line[str]) -> list[str]:
    return [line.take() for _ in range(len(line))]


def test_first_comers_alternate_with_those_who_come_again() -> None:
    line = Line[str]()
    for n in range(3):
        line.add(f"again {n}", "a", again=True)
    for n in range(2):
        line.add(f"first {n}", "a", again=False)
    assert taken(line) == ["first 0", "again 0", "first 1", "again 1", "again 2"]
    assert len(line) == 0


def test_addresses_take_turns() -> None:
    line = Line[str]()
    for n in range(3):
        line.add(f"a{n}", "a", again=True)
    line.add("b0", "b", again=True)
    assert taken(line) == ["a0", "b0", "a1", "a2"]


def test_a_full_line_turns_out_its_newest_of_one_address() -> None:
    line = Line[str]()
    for name in ("a0", "b0", "b1", "b2", "a1"):
        line.add(name, name[0], again=False)
    line.add("c0", "c", again=True)
    assert line.make_room(1, again=True) is None
    assert [line.make_room(3, again=False) for _ in range(3)] == ["b2", "b1", None]
    assert taken(line) == ["a0", "c0", "b0", "a1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans())))
def test_each_who_waits_is_taken_once_and_in_the_order_of_its_kind(
    steps: list[tuple[str, bool, bool]],
) -> None:
    line, there, came = Line[tuple[str, bool, int]](), 0, list[tuple[str, bool, int]]()
    for n, (whose, again, takes) in enumerate(steps):
        line.add((whose, again, n), whose, again=again)
        there += 1
        if takes:
            came.append(line.take())
            there -= 1
        assert len(line) == there
    came += [line.take() for _ in range(there)]
    assert sorted(n for _, _, n in came) == list(range(len(steps)))
    for whose in "abc":
        for again in (False, True):
            of_kind = [n for its, kind, n in came if (its, kind) == (whose, again)]
            assert of_kind == sorted(of_kind)


class Waiting:
    """A connection that counts its steps."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.is_open, self.steps = is_open, 0

    def go_on(self) -> bool:
        self.steps += 1
        return self.is_open


async def turns_pass(is_over: Callable[[], bool]) -> int:
    count = 0
    async with asyncio.timeout(20):
        while not is_over():
            await asyncio.sleep(0)  # A turn of the loop.
            count += 1
    return count


def test_a_turn_of_the_loop_has_few_steps() -> None:
    async def run() -> None:
        its, waiting = Turns(), [Waiting() for _ in range(10 * STEPS_A_TURN)]
        for each in waiting:
            its.want(each, "a", again=False)
        assert await turns_pass(lambda: all(each.steps for each in waiting)) >= 10
        assert {each.steps for each in waiting} == {1}

    asyncio.run(run())


def test_users_take_turns_and_wait_for_no_stranger() -> None:
    """Who had logged in, and might do nothing, had the whole loop."""

    async def run() -> None:
        its, order = Turns(), list[str]()

        class Noted(Waiting):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def go_on(self) -> bool:
                order.append(self.name)
                return super().go_on()

        for _ in range(10 * KNOWN_STEPS_A_TURN):
            its.want(Noted("mallory"), "User:mallory", again=True, is_known=True)
            its.want(Noted("stranger"), "10.0.0.1", again=True)
        its.want(bob := Noted("bob"), "User:bob", again=True, is_known=True)
        await turns_pass(lambda: bob.steps > 0)
        assert order[:2] == ["mallory", "bob"]
        turns_of_loop = await turns_pass(lambda: order.count("mallory") == 10 * KNOWN_STEPS_A_TURN)
        assert turns_of_loop >= 9

    asyncio.run(run())


def test_those_who_have_gone_cost_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        its, last = Turns(), Waiting()
        for _ in range(10 * STEPS_A_TURN):
            its.want(Waiting(is_open=False), "a", again=False)
        its.want(last, "a", again=False)
        assert await turns_pass(lambda: last.steps > 0) <= 3

    monkeypatch.setattr(turns, "TURN_S", 20.0)
    asyncio.run(run())


def test_a_request_has_the_standing_of_its_connection() -> None:
    standing = PeerStanding()
    standing.learn("User:alice", is_known=True)
    assert (standing.is_known, standing.user) == (True, "User:alice")
    assert standing_of({"type": "http", "state": standing.in_state()}) is standing
    assert standing_of({"type": "http"}) == PeerStanding()
