"""Users take turns at few threads."""

import asyncio
import gc
import threading
from queue import SimpleQueue

import pytest
from starlette.requests import Request

from smq.front.rights import give_rights
from smq.front.user_threads import UserThreads
from smq.security.principals import Peer, Principal
from tests.front.users import rights_for

LOGINS = rights_for().logins


class Work:
    """Calls that last until they are ended; `begun` has whose they are."""

    def __init__(self) -> None:
        self.begun, self._ends, self._begun = (
            list[str](),
            threading.Semaphore(0),
            SimpleQueue[str](),
        )

    def __call__(self, user: str) -> str:
        self.begun.append(user)
        self._begun.put(user)
        assert self._ends.acquire(timeout=20)
        return user

    def end(self, calls: int) -> None:
        """So many calls end, or will."""
        self._ends.release(calls)

    async def begins(self) -> str:
        """Whose call begins next."""
        return await asyncio.to_thread(self._begun.get, timeout=20)


def asked_by(user: str) -> Request:
    """A request of a user; of nobody in particular if the name is empty."""
    assert LOGINS is not None
    request = Request({"type": "http"})
    peer = Peer(Principal("User", user), "", "HTTP")
    give_rights(request.scope, LOGINS.rights_of(peer) if user else None)
    return request


@pytest.mark.parametrize(("of_one", "first"), [(1, ["alice", "bob"]), (2, ["alice", "alice"])])
def test_a_user_holds_few_of_the_threads(of_one: int, first: list[str]) -> None:
    threads, work = UserThreads(2, of_one), Work()

    async def run() -> None:
        users = ["alice"] * 12 + ["bob"]
        tasks = [asyncio.create_task(threads.run(asked_by(each), work, each)) for each in users]
        assert sorted([await work.begins(), await work.begins()]) == first
        assert len(threads) == 2
        work.end(1)
        await work.begins()
        assert "bob" in work.begun
        work.end(len(users))
        assert await asyncio.wait_for(asyncio.gather(*tasks), 20) == users

    asyncio.run(run())
    gc.collect()
    assert len(threads) == 0, "nothing is kept of who has left"


def test_strangers_share_all_threads() -> None:
    threads, work = UserThreads(2), Work()

    async def run() -> None:
        tasks = [asyncio.create_task(threads.run(asked_by(""), work, "")) for _ in range(5)]
        await work.begins()
        await work.begins()
        assert (len(work.begun), len(threads)) == (2, 0)
        work.end(5)
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    asyncio.run(run())


def test_a_failure_and_a_cancelled_call_end_a_turn() -> None:
    threads, work = UserThreads(1), Work()

    def fail() -> None:
        raise ValueError("nothing is there")

    async def run() -> None:
        with pytest.raises(ValueError, match="nothing"):
            await threads.run(asked_by("alice"), fail)
        tasks = [asyncio.create_task(threads.run(asked_by("alice"), work, "")) for _ in range(3)]
        await work.begins()
        tasks[1].cancel()
        work.end(3)
        assert await asyncio.wait_for(tasks[2], 20) == ""

    asyncio.run(run())
