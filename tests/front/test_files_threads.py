"""The threads in which the front waits for its filer: no user holds them all."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.filer.store import CREATE, Data, Facts, Mode, OpenObject, Sink, Store
from smq.front.files import SHARE, THREADS
from smq.front.rights import FREE
from smq.security.acls import Operation, PatternType
from smq.testing.faulty_store import Wrapper
from smq.testing.memory_store import MemoryStore
from tests.front.asgi import Call, call_async, front
from tests.front.users import as_user, may, rights_for

PREFIXED = PatternType.PREFIXED


class StuckLists(Wrapper):
    """A store whose lists of stuck/ do not end before `end`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.begun, self.at_work, self.end = threading.Event(), 0, threading.Event()

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        if prefix.startswith("stuck/"):
            self.at_work += 1
            self.begun.set()
            assert self.end.wait(60)
        return super().list(prefix, after)


@pytest.mark.parametrize("has_users", [False, True])
def test_long_lists_leave_threads_to_others(has_users: bool) -> None:
    """A user who may read one topic held all threads, and the GIL, with lists on 40 connections."""
    store = StuckLists(MemoryStore(lambda: 1))
    store.put("docs/a", b"x")
    rules = [may(user, Operation.READ, "filer/", how=PREFIXED) for user in ("alice", "bob")]
    app = front(store, rights=rights_for(*rules) if has_users else FREE)
    alice, bob = (as_user(each) if has_users else {} for each in ("alice", "bob"))

    async def run() -> None:
        head = call_async(app, Call("HEAD", "/filer/docs/a", headers=alice))
        assert (await head).status == 200
        stuck = [
            asyncio.create_task(call_async(app, Call("GET", "/filer/stuck/", headers=alice)))
            for _ in range(THREADS)
        ]
        assert await asyncio.to_thread(store.begun.wait, 20)
        path = "/filer/docs/" if has_users else "/filer/docs/a"
        found = await asyncio.wait_for(call_async(app, Call("GET", path, headers=bob)), 20)
        assert found.status == 200
        assert store.at_work <= (1 if has_users else 2)
        store.end.set()
        answers = await asyncio.wait_for(asyncio.gather(*stuck), 60)
        assert {each.status for each in answers} == {200}

    try:
        asyncio.run(run())
    finally:
        store.end.set()


class StuckObjects(Wrapper):
    """A store on which what is asked of stuck/ does not end before `end`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.begun, self.at_work, self.end = threading.Event(), 0, threading.Event()

    def _wait(self, key: str) -> None:
        if key.startswith("stuck/"):
            self.at_work += 1
            self.begun.set()
            assert self.end.wait(60)

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        with super().writing(key, mode) as sink:
            yield sink
            self._wait(key)

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[OpenObject]:
        with super().reading(key, start, length) as reading:
            yield OpenObject(reading.facts, self._pieces(key, reading))

    def _pieces(self, key: str, reading: OpenObject) -> Iterator[Data]:
        self._wait(key)
        yield from reading.pieces

    def delete(self, key: str) -> None:
        self._wait(key)
        super().delete(key)


@pytest.mark.parametrize(("method", "status"), [("PUT", 201), ("GET", 200), ("DELETE", 204)])
def test_slow_transfers_of_a_user_leave_threads_to_others(
    method: str, status: int, tmp_path: Path
) -> None:
    """The syncs of one user's uploads held all threads: others waited for each piece of theirs."""
    store = StuckObjects(LocalStore(tmp_path))
    names = [f"stuck/{number}" for number in range(THREADS + 5)]
    for name in ["docs/a", *(names if method != "PUT" else [])]:
        store.inner.put(name, b"x")
    may_do = (Operation.READ, Operation.WRITE, Operation.DELETE)
    rules = [
        may(user, each, "filer/", how=PREFIXED) for user in ("alice", "bob") for each in may_do
    ]
    app = front(store, rights=rights_for(*rules))
    alice, bob = as_user("alice"), as_user("bob")

    async def run() -> None:
        head = call_async(app, Call("HEAD", "/filer/docs/a", headers=alice))
        assert (await head).status == 200
        stuck = [
            asyncio.create_task(call_async(app, Call(method, f"/filer/{each}", headers=alice)))
            for each in names
        ]
        assert await asyncio.to_thread(store.begun.wait, 20)
        for each in (Call("GET", "/filer/docs/a"), Call("PUT", "/filer/docs/b", (b"y",))):
            made = each._replace(headers=bob)
            found = await asyncio.wait_for(call_async(app, made), 20)
            assert found.status in {200, 201}
        assert store.at_work <= THREADS // SHARE
        store.end.set()
        answers = await asyncio.wait_for(asyncio.gather(*stuck), 60)
        assert {each.status for each in answers} == {status}

    try:
        asyncio.run(run())
    finally:
        store.end.set()
