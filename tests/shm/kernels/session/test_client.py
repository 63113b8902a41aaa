"""The client's half of a session: room, pads, sleeping for room."""

import os
from collections import deque
from collections.abc import Iterator
from threading import Thread

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.session import words
from shm.kernels.session.client import await_room, find_room, has_news, spin
from shm.kernels.session.words import RESTART_BYTES
from shm.kernels.twin.session import room
from shm.session import SessionMemory
from tests.shm.kernels.sessions import ANSWERS_BYTES, INBOX_BYTES, Pair, request

SECOND_NS = 1_000_000_000


@pytest.fixture
def both() -> Iterator[Pair]:
    memory = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
    yield Pair(memory, SessionMemory.attach(memory.fd))
    os.close(memory.fd)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, INBOX_BYTES // 4).map(lambda n: 8 * n),
    st.integers(0, INBOX_BYTES // 8).map(lambda n: 8 * n),
    st.integers(1, INBOX_BYTES // 2),
)
def test_room_is_where_the_twin_finds_it(head: int, filled: int, size: int) -> None:
    memory = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
    both = Pair(memory, SessionMemory.attach(memory.fd))
    both.begin_at(head)
    both.client.side[words.IN_POSITION] = head + filled
    at = find_room(both.client.memory, both.client.side, size)
    expected = room(INBOX_BYTES, head, head + filled, size)
    os.close(memory.fd)
    if expected is None:
        assert at == -1
        assert both.client.side[words.IN_POSITION] == head + filled
    else:
        place, pad = expected
        assert at == words.INBOX_AT + place
        assert both.client.side[words.IN_POSITION] == head + filled + pad
        if pad:
            pad_at = words.INBOX_AT + (head + filled) % INBOX_BYTES
            assert bytes(both.client.memory[pad_at : pad_at + 4]) == b"\xff" * 4


@pytest.mark.parametrize("small", [20, RESTART_BYTES - 4, RESTART_BYTES + 4, INBOX_BYTES // 3])
def test_an_empty_inbox_takes_the_largest_request_wherever_its_end_is(
    both: Pair, small: int
) -> None:
    largest = request(bytes(INBOX_BYTES // 2 - 4))
    for _ in range(5):
        both.send(request(bytes(small)))
        both.take(INBOX_BYTES)
        both.send(largest)
        assert both.take(INBOX_BYTES) == largest


def test_small_requests_use_only_the_start_of_the_inbox(both: Pair) -> None:
    for number in range(5000):
        data = request(bytes([number % 255 + 1]) * 100)
        both.send(data)
        assert both.take(1000) == data
    assert not both.shard.memory[words.INBOX_AT + RESTART_BYTES + 104 :].any()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(8, INBOX_BYTES // 2 - 4), st.booleans()), max_size=60))
def test_the_shard_takes_the_sent_requests(steps: list[tuple[int, bool]]) -> None:
    memory = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
    both = Pair(memory, SessionMemory.attach(memory.fd))
    waiting: deque[bytes] = deque()
    for number, (size, take) in enumerate(steps):
        data = request(bytes([number % 256]) * size)
        if find_room(both.client.memory, both.client.side, len(data)) >= 0:
            both.send(data)
            waiting.append(data)
        if take:
            assert both.take(INBOX_BYTES * 2) == b"".join(waiting)
            waiting.clear()
    assert both.take(INBOX_BYTES * 2) == b"".join(waiting)
    os.close(memory.fd)


def test_a_client_waiting_for_room_is_woken(both: Pair) -> None:
    largest = request(bytes(INBOX_BYTES // 2 - 4))
    both.send(largest)
    both.send(largest)
    assert await_room(both.client.memory, both.client.side, 8, 1000) == -1
    taken: list[bytes] = []

    def take_once_it_waits() -> None:
        while both.shard.words[words.ROOM_WANTED] == 0:
            pass
        taken.append(both.take(INBOX_BYTES))

    shard = Thread(target=take_once_it_waits)
    shard.start()
    assert await_room(both.client.memory, both.client.side, 8, 20 * SECOND_NS) >= 0
    shard.join()
    assert taken == [largest + largest]
    assert both.shard.words[words.ROOM_WANTED] == 0


def test_spinning_ends_with_news_or_with_its_rounds(both: Pair) -> None:
    assert not spin(both.client.memory, both.client.side, 1000)
    both.shard.words[words.EVENTS] += 1
    assert has_news(both.client.memory, both.client.side)
    assert spin(both.client.memory, both.client.side, 2**62)
