"""The thread that checks passwords: one at a time, and fairly."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from smq.front import lane as lanes
from smq.front.lane import AskerGone, LineFull, LoginLane, whose_login
from smq.front.turns import PeerStanding


class Work:
    """Pieces of work, the first of which lasts until all others wait."""

    def __init__(self) -> None:
        self.go, self.order = threading.Event(), list[str]()
        self.at_once = self.most_at_once = 0

    def piece(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            assert self.go.wait(20)
            self.order.append(name)
            self.at_once -= 1
            return name

        return work


class Asked(NamedTuple):
    name: str
    whose: str = "a"
    again: bool = False
    is_gone: bool = False


def begun(lane: LoginLane, work: Work, asked: Asked) -> asyncio.Task[str]:
    standing = PeerStanding(is_gone=asked.is_gone)
    return asyncio.create_task(
        lane.run(work.piece(asked.name), asked.whose, standing, again=asked.again)
    )


async def all_of(lane: LoginLane, work: Work, asked: list[Asked]) -> list[object]:
    tasks = list[asyncio.Task[str]]()
    for each in asked:
        tasks.append(begun(lane, work, each))
        await asyncio.sleep(0)  # It is in the line.
    work.go.set()
    found: Awaitable[list[object]] = asyncio.gather(*tasks, return_exceptions=True)
    return await asyncio.wait_for(found, 20)


def test_one_piece_is_worked_at_and_addresses_take_turns() -> None:
    work = Work()
    asked = [Asked(name, name[0]) for name in ("a0", "a1", "a2", "b0")]
    assert asyncio.run(all_of(LoginLane(), work, asked)) == ["a0", "a1", "a2", "b0"]
    assert work.order == ["a0", "a1", "b0", "a2"]
    assert work.most_at_once == 1


def test_a_first_login_does_not_wait_for_all_repeated_ones() -> None:
    work = Work()
    asked = [Asked(f"bad {n}", again=True) for n in range(3)]
    asyncio.run(all_of(LoginLane(), work, [*asked, Asked("new")]))
    assert work.order == ["bad 0", "new", "bad 1", "bad 2"]


def test_nothing_is_done_for_who_has_left() -> None:
    work = Work()
    asked = [Asked("a0"), Asked("a1", is_gone=True), Asked("a2")]
    found = asyncio.run(all_of(LoginLane(), work, asked))
    assert isinstance(found[1], AskerGone)
    assert work.order == ["a0", "a2"]


def ends_of_a_full_line(monkeypatch: pytest.MonkeyPatch, *asked: Asked) -> list[object]:
    """How the logins end if four may wait, behind one that is worked at."""
    monkeypatch.setattr(lanes, "LINE_MAX", 4)
    found = asyncio.run(all_of(LoginLane(), Work(), [Asked("at work"), *asked]))
    return ["full" if isinstance(each, LineFull) else each for each in found[1:]]


def test_a_full_line_takes_a_login_beside_many_of_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flood = [Asked(f"a{number}", "a") for number in range(6)]
    ends = ends_of_a_full_line(monkeypatch, *flood, Asked("b", "b"))
    assert ends == ["a0", "a1", "a2", "full", "full", "full", "b"]


def test_a_full_line_of_many_names_refuses_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = [Asked(name, name) for name in "abcdef"]
    ends = ends_of_a_full_line(monkeypatch, *flood)
    assert ends == ["a", "b", "c", "d", "full", "full"]


def test_those_who_come_again_fill_a_line_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = [Asked(name, name, again=True) for name in "abcdef"]
    ends = ends_of_a_full_line(monkeypatch, *flood, Asked("new", "new"))
    assert ends == ["a", "b", "c", "d", "full", "full", "new"]


@pytest.mark.parametrize("which", [0, 1], ids=["the-one-at-work", "one-that-waits"])
def test_a_cancelled_request_blocks_no_other(which: int) -> None:
    async def run() -> None:
        lane, work = LoginLane(), Work()
        tasks = list[asyncio.Task[str]]()
        for name in ("a0", "a1", "a2"):
            tasks.append(begun(lane, work, Asked(name)))
            await asyncio.sleep(0)
        tasks[which].cancel()
        work.go.set()
        assert await asyncio.wait_for(tasks[2], 20) == "a2"
        with suppress(asyncio.CancelledError):
            await tasks[which]

    asyncio.run(run())


def test_on_this_host_names_take_turns_and_elsewhere_addresses() -> None:
    """A proxy of this host has one address for all."""
    assert whose_login("127.0.0.1", "alice") != whose_login("127.0.0.1", "bob")
    assert whose_login("10.0.0.1", "alice") == whose_login("10.0.0.1", "bob")
    one_network = "2001:db8:0:0:0:0:0:1", "2001:db8:0:0:ffff:0:0:2"
    assert len({whose_login(each, "") for each in one_network}) == 1
