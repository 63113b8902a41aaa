"""Places of long downloads: whoever waits in line gets one, and nobody who reads loses his soon."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from smq.front.downloads import GRACE_S, HELD_S, LINE_MAX, PACE_BYTES_S, WAIT_S, Busy, Downloads


class Loop(asyncio.SelectorEventLoop):
    """Time passes when a test says so."""

    passed_s = 1000.0

    def time(self) -> float:
        return self.passed_s


class World:
    """Downloads by name; the first letter is who loads down."""

    def __init__(self, places: int = 2, line_max: int = LINE_MAX) -> None:
        self.downloads = Downloads(places, line_max)
        self.state = dict[str, str]()
        self._tasks = dict[str, asyncio.Task[None]]()
        self._read = dict[str, asyncio.Queue[int]]()

    async def come(self, *names: str) -> None:
        for name in names:
            self._read[name] = asyncio.Queue()
            self._tasks[name] = asyncio.create_task(self._load(name))
            await self.settle()

    async def _load(self, name: str) -> None:
        self.state[name] = "waits"
        try:
            async with self.downloads.place(name[0]) as place:
                self.state[name] = "has a place"
                while byte_count := await self._read[name].get():
                    place.sent(byte_count)
        except asyncio.CancelledError:
            self.state[name] = "left"
        except Busy:
            self.state[name] = "refused"
        except TimeoutError:
            self.state[name] = "lost"
        else:
            self.state[name] = "done"

    async def read(self, name: str, byte_count: int) -> None:
        """Read so much; 0: to the end."""
        self._read[name].put_nowait(byte_count)
        await self.settle()

    async def leave(self, name: str) -> None:
        self._tasks[name].cancel()
        await self.settle()

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.passed_s += seconds
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        self.downloads.invariants()

    def those(self, state: str) -> str:
        return " ".join(name for name, each in self.state.items() if each == state)


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work)


def test_a_newcomer_waits_until_a_download_ends() -> None:
    async def work() -> None:
        world = World()
        await world.come("a1", "b1", "c1")
        assert world.those("waits") == "c1"
        await world.read("a1", 0)
        assert (world.those("done"), world.those("has a place")) == ("a1", "b1 c1")

    run(work())


def test_a_client_who_reads_nothing_loses_his_place_to_one_who_waits() -> None:
    """Four who hardly read kept all others out for as long as they liked."""

    async def work() -> None:
        world = World()
        await world.come("a1", "b1")
        await world.wait(GRACE_S)
        await world.read("b1", 2 * PACE_BYTES_S)
        await world.come("c1")
        assert (world.those("lost"), world.those("has a place")) == ("a1", "b1 c1")

    run(work())


def test_a_client_who_reads_keeps_his_place_for_a_while_and_no_longer_than_others_wait() -> None:
    async def work() -> None:
        world = World(1)
        await world.come("a1", "c1")
        await world.read("a1", 1 << 40)
        await world.wait(HELD_S - 1)
        assert world.those("has a place") == "a1"
        await world.leave("c1")
        await world.wait(HELD_S)
        assert world.those("has a place") == "a1"
        await world.come("d1")
        assert (world.those("lost"), world.those("has a place")) == ("a1", "d1")

    run(work())


def test_a_client_in_the_line_gets_a_place_in_time() -> None:
    async def work() -> None:
        world = World(LINE_MAX)
        holders, waiting = ("a1", "b1"), ("c1", "d1")
        await world.come(*holders, *waiting)
        for name in holders:
            await world.read(name, 1 << 40)
        assert HELD_S < WAIT_S
        await world.wait(HELD_S)
        assert (world.those("lost"), world.those("has a place")) == ("a1 b1", "c1 d1")

    run(work())


def test_a_line_that_is_full_refuses_the_last_of_the_user_who_has_most() -> None:
    async def work() -> None:
        world = World()
        await world.come("a1", "a2", "a3", "b1", "b2")
        assert world.those("refused") == "a3"
        await world.come("c1")
        assert world.those("refused") == "a3 b2"
        await world.come("d1")
        assert world.those("refused") == "a3 b2 d1"
        await world.wait(GRACE_S)
        assert world.those("has a place") == "b1 c1"

    run(work())


def test_a_free_place_goes_to_the_user_who_has_fewest() -> None:
    async def work() -> None:
        world = World()
        await world.come("a1", "a2", "a3", "b1")
        await world.wait(GRACE_S - 1)
        await world.read("a1", 0)
        assert (world.those("has a place"), world.those("waits")) == ("a2 b1", "a3")

    run(work())


@pytest.mark.parametrize("name", ["a1", "b1"])
def test_a_client_that_leaves_gives_up_its_place_or_its_wait(name: str) -> None:
    async def work() -> None:
        world = World(1)
        await world.come("a1", "b1", "c1")
        await world.leave(name)
        assert world.those("refused") == world.those("lost") == ""
        await world.read("a1", 0)
        if name == "a1":
            await world.read("b1", 0)
        assert world.those("has a place") == "c1"

    run(work())


def test_a_loop_that_has_hung_leaves_no_client_in_the_line() -> None:
    async def work() -> None:
        world = World(1)
        await world.come("a1", "a2", "b1")
        await world.wait(10 * WAIT_S)
        await world.wait(GRACE_S)
        await world.wait(GRACE_S)
        assert world.those("waits") == ""
        assert set(world.state.values()) <= {"lost", "refused", "has a place"}

    run(work())
