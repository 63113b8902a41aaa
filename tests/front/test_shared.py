"""One look for all who wait, and none that began before somebody asked."""

import asyncio
import threading

import pytest

from smq.front import shared
from smq.front.shared import Shared
from smq.front.turns import STEPS_A_TURN


class Looks:
    """Looks that begin when they are told to, and are numbered."""

    def __init__(self) -> None:
        self.count = 0
        self.go = threading.Semaphore(0)

    def look(self) -> int:
        self.count += 1
        number = self.count
        assert self.go.acquire(timeout=20)
        return number


def test_all_who_ask_during_a_look_get_the_next_one_together() -> None:
    async def run() -> None:
        looks = Looks()
        its = Shared(looks.look)
        first = asyncio.create_task(its.answer())
        async with asyncio.timeout(20):
            while not looks.count:  # noqa: ASYNC110  (A thread begins it.)
                await asyncio.sleep(0.001)
        others = [asyncio.create_task(its.answer()) for _ in range(10)]
        looks.go.release(2)
        assert await first == 1
        assert set(await asyncio.gather(*others)) == {2}
        assert looks.count == 2

    asyncio.run(run())


def test_a_cancelled_request_takes_no_answer_from_the_others() -> None:
    async def run() -> None:
        looks = Looks()
        its = Shared(looks.look)
        gone, stays = asyncio.create_task(its.answer()), asyncio.create_task(its.answer())
        await asyncio.sleep(0)
        gone.cancel()
        looks.go.release()
        assert await stays == 1

    asyncio.run(run())


def test_many_who_wait_are_answered_a_few_in_a_turn_of_the_loop() -> None:
    async def run() -> None:
        looks = Looks()
        its = Shared(looks.look)
        waiting = [asyncio.create_task(its.answer()) for _ in range(10 * STEPS_A_TURN)]
        await asyncio.sleep(0)
        looks.go.release()
        await waiting[0]
        assert sum(each.done() for each in waiting) <= 2 * STEPS_A_TURN
        assert set(await asyncio.gather(*waiting)) == {1}

    asyncio.run(run())


def test_a_look_that_fails_fails_for_those_who_wait_and_for_no_others() -> None:
    async def run() -> None:
        failures = [OSError("once")]

        def look() -> str:
            if failures:
                raise failures.pop()
            return "well"

        its = Shared(look)
        with pytest.raises(OSError, match="once"):
            await its.answer()
        assert await its.answer() == "well"

    asyncio.run(run())


def test_between_two_looks_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PAUSE_S", 0.2)

    async def run() -> None:
        began_s = list[float]()
        loop = asyncio.get_running_loop()
        its = Shared(lambda: began_s.append(loop.time()))
        for _ in range(3):
            await its.answer()
        assert began_s[2] - began_s[0] >= 0.4

    asyncio.run(run())
