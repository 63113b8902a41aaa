"""Buffers: what is lent for how long, and how large they grow."""

import pytest

from shm.kernels.turn_receive import RECEIVE_BYTES
from smq.app.receive import (
    BUFFER_BYTES,
    LENT_MAX,
    SHORT_REST_BYTES,
    Buffer,
    BufferPool,
    Rest,
)


def receive(pool: BufferPool, rest: Rest, data: bytes) -> Buffer:
    """Put bytes into a connection's buffer as recv does."""
    buffer = pool.take(rest)
    room = buffer.room()
    assert len(room) >= len(data)
    room[: len(data)] = data
    buffer.end += len(data)
    return buffer


def held(buffer: Buffer) -> bytes:
    return bytes(buffer.view[buffer.start : buffer.end])


def test_a_connection_without_a_rest_holds_nothing() -> None:
    pool, rest = BufferPool(), Rest()
    buffer = receive(pool, rest, b"whole")
    buffer.start = buffer.end
    pool.put_back(buffer, rest)
    assert rest == Rest()
    assert pool.take(Rest()) is buffer


@pytest.mark.parametrize("size", [1, SHORT_REST_BYTES, SHORT_REST_BYTES + 1])
def test_a_rest_is_continued_whether_it_was_copied_or_stayed(size: int) -> None:
    pool, rest = BufferPool(), Rest()
    buffer = receive(pool, rest, b"done" + b"r" * size)
    buffer.start += 4
    pool.put_back(buffer, rest)
    assert (rest.buffer is None) == (size <= SHORT_REST_BYTES)
    assert held(receive(pool, rest, b"end")) == b"r" * size + b"end"


def test_beyond_the_limit_rests_are_copied_whatever_their_size() -> None:
    pool = BufferPool()
    rests = [Rest() for _ in range(LENT_MAX + 1)]
    for rest in rests:
        pool.put_back(receive(pool, rest, b"x" * (SHORT_REST_BYTES + 1)), rest)
    assert [rest.buffer is None for rest in rests] == [False] * LENT_MAX + [True]
    pool.drop(rests[0])
    assert rests[0] == Rest()
    assert len(held(pool.take(rests[-1]))) == SHORT_REST_BYTES + 1


@pytest.mark.parametrize("lent_before", [0, LENT_MAX])
def test_a_large_request_is_collected_in_memory_that_grows_with_it(lent_before: int) -> None:
    pool, rest = BufferPool(), Rest()
    for _ in range(lent_before):
        other = Rest()
        pool.put_back(receive(pool, other, b"x" * (SHORT_REST_BYTES + 1)), other)
    request = (3 * BUFFER_BYTES).to_bytes(4) + b"r" * (3 * BUFFER_BYTES)
    for at in range(0, len(request), RECEIVE_BYTES):
        buffer = receive(pool, rest, request[at : at + RECEIVE_BYTES])
        assert len(buffer.view) <= 2 * (at + BUFFER_BYTES)
        pool.put_back(buffer, rest)
    assert held(pool.take(rest)) == request
