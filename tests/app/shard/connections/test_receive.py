"""Buffers: for how long they are lent, and how large they grow."""

import random
from typing import NamedTuple

import pytest

from shm.kernels.turn.requests import RECEIVE_BYTES
from smq.app.shard.connections.receive import (
    BUFFER_BYTES,
    EARNED_FACTOR,
    KEPT_SHARE,
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
    pool, rest = BufferPool(0), Rest()
    buffer = receive(pool, rest, b"whole")
    buffer.start = buffer.end
    pool.put_back(buffer, rest)
    assert (rest.held_bytes, rest.since_ns, pool.held_bytes) == (0, 0, 0)
    assert pool.take(Rest()) is buffer


@pytest.mark.parametrize("size", [1, SHORT_REST_BYTES, SHORT_REST_BYTES + 1])
def test_a_rest_is_continued_whether_it_was_copied_or_stayed(size: int) -> None:
    pool, rest = BufferPool(0), Rest()
    buffer = receive(pool, rest, b"done" + b"r" * size)
    buffer.start += 4
    pool.put_back(buffer, rest)
    assert (rest.buffer is None) == (size <= SHORT_REST_BYTES)
    assert held(receive(pool, rest, b"end")) == b"r" * size + b"end"


class Sender(NamedTuple):
    """Who holds a rest."""

    rest: Rest


def senders(pool: BufferPool, *sizes: int) -> list[Sender]:
    """So many have sent so much of a request; one after another, at 1 ns, 2 ns, …"""
    made = []
    for i, size in enumerate(sizes):
        made.append(Sender(Rest()))
        request = (1 << 30).to_bytes(4) + bytes(size - 4)
        pool.put_back(receive(pool, made[-1].rest, request), made[-1].rest, now_ns=i + 1)
        pool.invariants(made)
    return made


def test_beyond_the_limit_a_rest_has_a_buffer_of_its_own_that_it_has_earned() -> None:
    pool = BufferPool(0)
    made = senders(pool, *[SHORT_REST_BYTES + 1] * (LENT_MAX + 1))
    assert [each.rest.is_lent for each in made] == [True] * LENT_MAX + [False]
    assert made[-1].rest.held_bytes <= EARNED_FACTOR * SHORT_REST_BYTES
    pool.drop(made[0].rest)
    pool.invariants(made)
    assert len(held(pool.take(made[-1].rest))) == SHORT_REST_BYTES + 1
    for each in made:
        pool.drop(each.rest)
    assert (pool.held_bytes, pool._lent) == (0, 0)


def feed(pool: BufferPool, rest: Rest, data: bytes, piece_bytes: int) -> int:
    """Let data come in pieces; how many bytes were copied from buffer to buffer."""
    copied, at = 0, 0
    while at < len(data):
        buffer = pool.take(rest)
        room = buffer.room()
        size = min(piece_bytes, len(room), len(data) - at)
        room[:size] = data[at : at + size]
        at += size
        buffer.end += size
        pool.put_back(buffer, rest, now_ns=1)
        if rest.buffer is not buffer:
            copied += rest.received_bytes
    return copied


@pytest.mark.parametrize("piece_bytes", [1000, 30_000, RECEIVE_BYTES])
@pytest.mark.parametrize("others", [0, LENT_MAX])
def test_receiving_a_large_request_costs_linear_time(piece_bytes: int, others: int) -> None:
    pool, rest = BufferPool(0), Rest()
    made = senders(pool, *[SHORT_REST_BYTES + 1] * others)
    size = 41 * piece_bytes * 10 if piece_bytes < RECEIVE_BYTES else 41 * RECEIVE_BYTES
    request = size.to_bytes(4) + random.Random(1).randbytes(size)
    copied = feed(pool, rest, request, piece_bytes)
    pool.invariants([*made, Sender(rest)])
    assert copied <= 3 * size + SHORT_REST_BYTES**2 // piece_bytes
    assert held(pool.take(rest)) == request


def test_a_shrinking_rest_is_copied_in_linear_time() -> None:
    pool, rest = BufferPool(0), Rest()
    made = senders(pool, *[SHORT_REST_BYTES + 1] * LENT_MAX)
    copied, total = 0, RECEIVE_BYTES
    pool.put_back(receive(pool, rest, bytes(total)), rest)
    while rest.received_bytes > SHORT_REST_BYTES:
        buffer = pool.take(rest)
        buffer.start += 1000  # A turn's requests.
        pool.put_back(buffer, rest)
        pool.invariants([*made, Sender(rest)])
        copied += rest.received_bytes if rest.buffer is not buffer else 0
    assert copied <= 2 * total


def test_a_rest_never_has_no_room_for_what_comes() -> None:
    pool, rest = BufferPool(0), Rest()
    senders(pool, *[SHORT_REST_BYTES + 1] * LENT_MAX)
    whole = (SHORT_REST_BYTES).to_bytes(4) + bytes(SHORT_REST_BYTES)
    for _ in range(20):  # Requests that are not taken yet.
        buffer = receive(pool, rest, whole)
        pool.put_back(buffer, rest)
    assert held(pool.take(rest)) == 20 * whole


# --- all together ---------------------------------------------------------------------------------


def test_the_largest_requests_fit_and_so_do_all_buffers_that_are_lent() -> None:
    largest = 100 << 20
    assert BufferPool(largest).bytes_max >= 4 * largest
    assert BufferPool(0).bytes_max >= 2 * LENT_MAX * BUFFER_BYTES


def test_over_the_bound_the_slowest_pay_until_there_is_room() -> None:
    pool = BufferPool(0)
    slow, fast, new = senders(pool, SHORT_REST_BYTES, RECEIVE_BYTES, SHORT_REST_BYTES)
    assert pool.slowest([slow, fast, new], now_ns=1000) == []
    pool.bytes_max = pool.held_bytes - 1
    new.rest.since_ns = 999
    assert pool.slowest([fast, new, slow], now_ns=1000)[0] == slow
    for each in pool.slowest([fast, new, slow], now_ns=1000):
        pool.drop(each.rest)
    assert pool.held_bytes <= KEPT_SHARE * pool.bytes_max


def test_a_request_s_time_begins_with_its_first_byte_and_not_with_its_last() -> None:
    pool, rest = BufferPool(0), Rest()
    for now_ns in range(1, 6):
        pool.put_back(receive(pool, rest, bytes(10_000)), rest, now_ns)
    assert rest.since_ns == 1
    buffer = pool.take(rest)
    buffer.start += 30_000
    pool.put_back(buffer, rest, 7)
    assert rest.since_ns == 7
    pool.put_back(receive(pool, rest, bytes(10_000)), rest, 8)
    assert rest.since_ns == 7


@pytest.mark.parametrize("lent_before", [0, LENT_MAX])
def test_a_large_request_is_collected_in_memory_that_grows_with_it(lent_before: int) -> None:
    pool, rest = BufferPool(0), Rest()
    for _ in range(lent_before):
        other = Rest()
        pool.put_back(receive(pool, other, b"x" * (SHORT_REST_BYTES + 1)), other)
    request = (3 * BUFFER_BYTES).to_bytes(4) + b"r" * (3 * BUFFER_BYTES)
    for at in range(0, len(request), RECEIVE_BYTES):
        buffer = receive(pool, rest, request[at : at + RECEIVE_BYTES])
        assert len(buffer.view) <= 2 * (at + BUFFER_BYTES)
        pool.put_back(buffer, rest)
    assert held(pool.take(rest)) == request
