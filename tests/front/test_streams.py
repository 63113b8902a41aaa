"""Blocking calls from asyncio, one after the other, and always to their end."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.types import Message

from smq.front import streams
from smq.front.streams import Silent, TooLong, body_pieces, in_threads


def request_of(pieces: list[bytes], *, then_silent: bool = False) -> Request:
    async def receive() -> Message:
        if pieces:
            piece = pieces.pop(0)
            more = bool(pieces) or then_silent
            return {"type": "http.request", "body": piece, "more_body": more}
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http", "headers": []}, receive)


async def all_pieces(request: Request) -> list[bytes]:
    return [bytes(piece) async for piece in body_pieces(request)]


def test_a_body_comes_in_pieces_worth_a_switch_of_threads() -> None:
    sent = [b"x" * 60_000] * 40
    pieces = asyncio.run(all_pieces(request_of(list(sent))))
    assert b"".join(pieces) == b"".join(sent)
    assert len(pieces) == 3
    assert all(1 << 20 <= len(piece) < (1 << 20) + 60_000 for piece in pieces[:-1])
    assert asyncio.run(all_pieces(request_of([b""]))) == []


def test_a_client_that_says_nothing_more_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LARGE_LAG_S", 0.01)
    with pytest.raises(Silent):
        asyncio.run(all_pieces(request_of([b"half"], then_silent=True)))


def trickling(clock: list[float], *, piece: bytes, every_s: float) -> Request:
    """A body without end, at a steady pace of a clock of its own."""

    async def receive() -> Message:
        clock[0] += every_s
        return {"type": "http.request", "body": piece, "more_body": True}

    return Request({"type": "http", "headers": []}, receive)


def received(
    monkeypatch: pytest.MonkeyPatch, piece: bytes, every_s: float, pieces_max: int
) -> float:
    """How many seconds the body is taken, for at most so many pieces."""
    clock = [0.0]

    async def run() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock[0])
        count = 0
        async for _ in streams.paced(trickling(clock, piece=piece, every_s=every_s), 10.0):
            count += 1
            if count == pieces_max:
                return

    try:
        asyncio.run(run())
    except Silent:
        return clock[0]
    return math.inf


def test_a_body_that_trickles_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Door fault 9: a byte a second holds a slot for ten seconds, not for ever."""
    assert received(monkeypatch, b"x", 1.0, 10_000) < 12
    assert received(monkeypatch, bytes(streams.PACE_BYTES_S // 2), 1.0, 10_000) < 22
    assert received(monkeypatch, bytes(streams.PACE_BYTES_S), 1.0, 1000) == math.inf


def test_a_small_body_is_whole_or_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(streams.small_body(request_of([b"ab", b"c"]), 3, "a form")) == b"abc"
    with pytest.raises(TooLong, match="a form has at most 2 bytes"):
        asyncio.run(streams.small_body(request_of([b"ab", b"c"]), 2, "a form"))
    monkeypatch.setattr(streams, "SMALL_LAG_S", 0.01)
    with pytest.raises(Silent):
        asyncio.run(streams.small_body(request_of([b"half"], then_silent=True), 9, "a form"))


@pytest.mark.parametrize("bytes_max", [3, 4, 5])
def test_a_body_that_is_read_ahead_is_received_again(bytes_max: int) -> None:
    """Of one that is too long the rest comes as before."""
    pieces = [b"ab", b"cd", b"ef"]
    request = request_of(pieces)

    async def run() -> bytes:
        receive = await streams.read_ahead(request.scope, request.receive, bytes_max)
        assert pieces == ([b"ef"] if bytes_max < 4 else [])
        return await Request(request.scope, receive).body()

    assert asyncio.run(run()) == b"abcdef"


def test_a_body_that_is_read_ahead_has_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SMALL_LAG_S", 0.01)
    request = request_of([b"half"], then_silent=True)
    with pytest.raises(Silent):
        asyncio.run(streams.read_ahead(request.scope, request.receive, 10))


def test_the_body_of_a_refused_request_is_read_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "DRAIN_BYTES_MAX", 25)
    monkeypatch.setattr(streams, "DRAIN_S", 0.01)
    for pieces, left in ([10], 0), ([10] * 5, 2):
        sent = [bytes(size) for size in pieces]
        asyncio.run(streams.drain(request_of(sent)))
        assert len(sent) == left
    asyncio.run(streams.drain(request_of([b"x"], then_silent=True)))


@contextmanager
def told(steps: list[str]) -> Iterator[str]:
    steps.append("entered")
    try:
        yield "it"
    except ZeroDivisionError:
        steps.append("failed")
        raise
    steps.append("left")


async def use(steps: list[str], *, fails: bool) -> None:
    async with in_threads(told(steps)) as it:
        steps.append(it)
        if fails:
            raise ZeroDivisionError


def test_a_manager_in_threads_is_entered_and_left() -> None:
    steps: list[str] = []
    asyncio.run(use(steps, fails=False))
    assert steps == ["entered", "it", "left"]


def test_a_manager_in_threads_learns_of_a_failure() -> None:
    steps: list[str] = []
    with pytest.raises(ZeroDivisionError):
        asyncio.run(use(steps, fails=True))
    assert steps == ["entered", "it", "failed"]


def test_a_request_that_is_cancelled_leaves_its_manager_to_the_end() -> None:
    left: list[str] = []

    @contextmanager
    def slow() -> Iterator[None]:
        try:
            yield
        finally:
            left.append("left")

    async def cancelled() -> None:
        entered = asyncio.Event()

        async def wait_within() -> None:
            async with in_threads(slow()):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(wait_within())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert left == ["left"]
