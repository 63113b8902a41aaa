"""Blocking calls from asyncio, one after the other, and always to their end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.types import Message

from smq.front import streams
from smq.front.streams import PIECE_BYTES, Silent, body_pieces, in_threads


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
    assert all(PIECE_BYTES <= len(piece) < PIECE_BYTES + 60_000 for piece in pieces[:-1])
    assert asyncio.run(all_pieces(request_of([b""]))) == []


def test_a_client_that_says_nothing_more_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SILENCE_S", 0.01)
    with pytest.raises(Silent):
        asyncio.run(all_pieces(request_of([b"half"], then_silent=True)))


def test_what_a_refused_client_sends_is_read_up_to_a_bound(
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
