"""The shard's half of a session: compared with its twin, and against what a client may write."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from shm.kernels.session import client as client_kernels, words
from shm.kernels.session.shard import (
    aligned,
    fall_asleep,
    must_ring,
    put_answers,
    size_of,
    spin_for_requests,
    take_requests,
    tell_event,
)
from shm.kernels.twin.session import Fault, aligned as twin_aligned, take
from shm.session import SessionMemory
from tests.shm.kernels.sessions import ANSWERS_BYTES, INBOX_BYTES, Pair, request

INT64 = st.integers(-(2**63), 2**63 - 1)


@contextmanager
def pair(head: int = 0) -> Iterator[Pair]:
    """Both halves of a session whose inbox has moved on to `head`."""
    memory = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
    both = Pair(memory, SessionMemory.attach(memory.fd))
    both.begin_at(head)
    yield both
    os.close(memory.fd)


@settings(deadline=None)
@given(st.integers(0, 1 << 40))
def test_requests_stand_at_multiples_of_eight(size: int) -> None:
    assert aligned(size) == twin_aligned(size)


@settings(deadline=None)
@given(st.binary(min_size=8, max_size=8))
def test_a_size_is_the_big_endian_number_in_the_first_four_bytes(data: bytes) -> None:
    word = int.from_bytes(data, "little", signed=True)
    assert size_of(word) == int.from_bytes(data[:4], "big", signed=True)


sizes = st.one_of(
    st.integers(-2, 300), st.sampled_from([-1, INBOX_BYTES // 2, 2**31 - 1, -(2**31)])
)
inboxes = st.lists(st.tuples(sizes, st.integers(0, 80)), max_size=60)


def written(pieces: list[tuple[int, int]]) -> bytes:
    """An inbox with these sizes, each with so many words after it."""
    stream = b"".join(
        size.to_bytes(4, "big", signed=True) + bytes(range(4)) + bytes([words % 256]) * (8 * words)
        for size, words in pieces
    )
    return stream[:INBOX_BYTES].ljust(INBOX_BYTES, b"\7")


def expected(inbox: bytes, head: int, tail: int, room: int) -> tuple[int, bytes, int]:
    """The twin's word: bytes or fault, the requests, the head after them."""
    try:
        after, taken = take(inbox, head, tail, INBOX_BYTES // 2 - 4, room)
    except Fault as fault:
        return fault.args[0], b"", head
    return len(taken), taken, after


@settings(max_examples=400, deadline=None)
@given(
    inboxes,
    st.integers(0, 3 * INBOX_BYTES // 8).map(lambda n: 8 * n),
    st.integers(-8, INBOX_BYTES + 64),
    st.sampled_from([INBOX_BYTES // 2, INBOX_BYTES]),
)
@example([(8, 1), (-1, 0)], INBOX_BYTES - 8, 8, INBOX_BYTES)
def test_kernel_and_twin_take_the_same_requests_from_any_inbox(
    pieces: list[tuple[int, int]], head: int, length: int, room: int
) -> None:
    with pair(head) as both:
        inbox = written(pieces)
        both.shard.memory[words.INBOX_AT :][:INBOX_BYTES] = np.frombuffer(inbox, np.uint8)
        both.shard.words[words.INBOX_TAIL] = head + length
        out = np.full(room + 8, 99, np.uint8)
        count = take_requests(both.shard.memory, both.shard.side, out[:room])
        result = (count, bytes(out[: max(0, count)]), both.shard.side[words.IN_POSITION])
        assert result == expected(inbox, head, head + length, room)
        assert both.shard.words[words.INBOX_HEAD] == result[2]
        assert (out[max(0, count) :] == 99).all()


@settings(deadline=None)
@given(st.lists(INT64, min_size=128, max_size=128))
def test_garbage_in_every_word_gives_bytes_or_a_fault_and_touches_nothing_else(
    header: list[int],
) -> None:
    with pair() as both:
        for i, word in enumerate(header):
            both.shard.words[i] = word
        side = both.shard.side.copy()
        out = np.full(INBOX_BYTES, 99, np.uint8)
        count = take_requests(both.shard.memory, both.shard.side, out)
        assert words.FAULT_CUT <= count <= INBOX_BYTES
        assert both.shard.side[words.IN_POSITION] >= side[words.IN_POSITION]
        fall_asleep(both.shard.memory, both.shard.side)
        put = put_answers(both.shard.memory, both.shard.side, out[:500])
        assert put == words.FAULT_HEAD or 0 <= put <= 500
        tell_event(both.shard.memory, both.shard.side)
        sizes = [words.IN_BYTES, words.OUT_AT, words.OUT_BYTES, words.REQUEST_MAX]
        assert np.array_equal(both.shard.side[sizes], side[sizes])


def test_a_size_that_changes_after_the_look_is_the_one_that_was_checked() -> None:
    with pair() as both:
        both.send(request(b"x" * 20))
        out = np.zeros(INBOX_BYTES, np.uint8)
        assert take_requests(both.shard.memory, both.shard.side, out) == 24
        assert bytes(out[:4]) == (20).to_bytes(4)


def test_requests_beyond_the_room_are_taken_next_time() -> None:
    with pair() as both:
        sent = [request(bytes([i]) * 100) for i in range(5)]
        for each in sent:
            both.send(each)
        assert [both.take(250) for _ in range(4)] == [
            b"".join(sent[:2]),
            b"".join(sent[2:4]),
            sent[4],
            b"",
        ]


def test_the_shard_does_not_fall_asleep_with_a_request_in_the_inbox() -> None:
    with pair() as both:
        both.send(request(b"12345678"))
        assert not fall_asleep(both.shard.memory, both.shard.side)
        both.take(100)
        assert fall_asleep(both.shard.memory, both.shard.side)


def test_spinning_finds_a_request_and_nothing_else() -> None:
    with pair() as both:
        assert not spin_for_requests(both.shard.memory, both.shard.side, 3)
        both.send(request(b"12345678"))
        assert spin_for_requests(both.shard.memory, both.shard.side, 1)


def test_a_client_rings_once_for_each_sleep() -> None:
    with pair() as both:
        assert not both.send(request(b"12345678"))
        both.take(100)
        for _ in range(3):
            assert fall_asleep(both.shard.memory, both.shard.side)
            assert both.send(request(b"12345678"))
            assert not both.send(request(b"12345678"))
            both.take(100)
            assert not both.send(request(b"12345678"))
            both.take(100)


def test_the_shard_rings_once_for_each_sleep_of_a_client() -> None:
    with pair() as both:
        memory, side = both.shard.memory, both.shard.side
        assert not must_ring(memory, side)
        for _ in range(3):
            assert client_kernels.fall_asleep_client(both.client.memory, both.client.side)
            assert must_ring(memory, side)
            assert not must_ring(memory, side)
            client_kernels.wake_client(both.client.memory, both.client.side)
            assert not must_ring(memory, side)


def test_an_event_wakes_and_is_seen_once() -> None:
    with pair() as both:
        memory, side = both.client.memory, both.client.side
        assert client_kernels.fall_asleep_client(memory, side)
        assert tell_event(both.shard.memory, both.shard.side)
        assert not tell_event(both.shard.memory, both.shard.side)
        assert client_kernels.has_news(memory, side)
        assert client_kernels.wake_client(memory, side)
        assert not client_kernels.wake_client(memory, side)
        assert not client_kernels.has_news(memory, side)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3 * ANSWERS_BYTES), st.integers(1, 3000)), max_size=20))
def test_answers_come_out_as_they_went_in_however_little_is_taken(
    steps: list[tuple[int, int]],
) -> None:
    with pair() as both:
        put, unsent, taken = b"", b"", b""
        for number, (size, room) in enumerate(steps):
            answer = bytes([number % 256]) * size
            put, unsent = put + answer, unsent + answer
            count = put_answers(both.shard.memory, both.shard.side, np.frombuffer(unsent, np.uint8))
            unsent = unsent[count:]
            assert bool(unsent) == (both.shard.words[words.ROOM_SLEEP] % 2 == 1)
            taken += both.answers(room)
            wants_room = client_kernels.must_ring_for_room(both.client.memory, both.client.side)
            assert wants_room <= bool(unsent)
        assert put.startswith(taken)


@pytest.mark.parametrize("head", [1, ANSWERS_BYTES + 1, 2**63 - 1, -(2**63)])
def test_a_client_that_takes_more_answers_than_there_are_is_a_fault(head: int) -> None:
    with pair() as both:
        both.shard.words[words.ANSWERS_HEAD] = head
        answers = np.frombuffer(b"x", np.uint8)
        assert put_answers(both.shard.memory, both.shard.side, answers) == words.FAULT_HEAD
