"""Long work: few at a time, and nobody else waits for it."""

import asyncio
import threading

import pytest

from smq.app.agent.apart import APART_MAX, done_apart


def test_long_work_is_done_few_at_a_time_and_holds_up_no_other_thread() -> None:
    lock, go = threading.Lock(), threading.Event()
    at_work = peak = 0

    def work() -> bool:
        nonlocal at_work, peak
        with lock:
            at_work += 1
            peak = max(peak, at_work)
        went = go.wait(30)
        with lock:
            at_work -= 1
        return went

    async def talk() -> None:
        working = [asyncio.create_task(done_apart(work)) for _ in range(10)]
        assert await asyncio.to_thread(lambda: "another call") == "another call"
        go.set()
        assert await asyncio.gather(*working) == [True] * 10

    asyncio.run(talk())
    assert peak <= APART_MAX


def test_an_error_of_long_work_is_its_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(done_apart(lambda: 1 // 0))
