"""The table of fetches that wait, against a dict of them."""

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.request.fetch import (
    STATE_MAX_WAIT_MS,
    STATE_PLACE_COUNT,
    STATE_PLACES,
    STATE_WORDS,
)
from shm.kernels.turn.parked import (
    NEVER_NS,
    REQUEST_BYTES_MAX,
    W_BYTES,
    W_DUE_NS,
    W_FD,
    WAITING_COUNT,
    WAITING_DUE_NS,
    WAITING_MAX,
    add_waiting,
    asks_for,
    new_waiting,
    remove_waiting,
    waiting_at,
)

SLOTS = 6
Waiting = tuple[np.ndarray, np.ndarray, np.ndarray]


def add(waiting: Waiting, fd: int, request: bytes, slots: list[int], wait_ms: int = 10) -> bool:
    state = np.zeros(STATE_WORDS, np.int64)
    state[STATE_MAX_WAIT_MS], state[STATE_PLACE_COUNT] = wait_ms, len(slots)
    state[STATE_PLACES : STATE_PLACES + len(slots)] = [7 << 32 | slot for slot in slots]
    data = np.frombuffer(b"size" + request, np.uint8)
    return bool(add_waiting(waiting, fd, data, 4, len(data), state, 0))


def held(waiting: Waiting) -> dict[int, tuple[bytes, set[int]]]:
    table, requests, _ = waiting
    found = {}
    for row in range(table[WAITING_COUNT]):
        at, start = waiting_at(row), row * REQUEST_BYTES_MAX
        slots = {slot for slot in range(SLOTS) if asks_for(table, row, slot)}
        found[int(table[at + W_FD])] = bytes(requests[start : start + table[at + W_BYTES]]), slots
    return found


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.binary(min_size=1, max_size=40),
                st.lists(st.integers(0, SLOTS - 1), unique=True, min_size=1),
            ),
            st.integers(0, 10),
        ),
        max_size=40,
    )
)
def test_what_was_added_is_held_until_it_is_removed(
    steps: list[tuple[bytes, list[int]] | int],
) -> None:
    waiting = new_waiting(SLOTS)
    expected: dict[int, tuple[bytes, set[int]]] = {}
    for fd, step in enumerate(steps):
        if not isinstance(step, int):
            assert add(waiting, fd, *step)
            expected[fd] = step[0], set(step[1])
        elif expected:
            row = step % len(expected)
            gone = int(waiting[0][waiting_at(row) + W_FD])
            remove_waiting(waiting, row)
            del expected[gone]
        assert held(waiting) == expected
        counts = [sum(slot in slots for _, slots in expected.values()) for slot in range(SLOTS)]
        assert waiting[2].tolist() == counts


def test_it_knows_when_the_first_is_due() -> None:
    waiting = new_waiting(SLOTS)
    assert waiting[0][WAITING_DUE_NS] == NEVER_NS
    for wait_ms in (30, 20, 50):
        add(waiting, 1, b"x", [0], wait_ms)
    assert waiting[0][WAITING_DUE_NS] == waiting[0][waiting_at(1) + W_DUE_NS] == 20_000_000


def test_what_it_has_no_room_for_is_not_taken() -> None:
    waiting = new_waiting(SLOTS)
    assert not add(waiting, 1, b"x" * (REQUEST_BYTES_MAX + 1), [0])
    for fd in range(WAITING_MAX):
        assert add(waiting, fd, b"x" * REQUEST_BYTES_MAX, [0])
    assert not add(waiting, WAITING_MAX, b"x", [0])
    assert waiting[0][WAITING_COUNT] == waiting[2][0] == WAITING_MAX
