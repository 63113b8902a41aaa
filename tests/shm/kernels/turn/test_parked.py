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
    PARKED_COUNT,
    PARKED_DUE_NS,
    PARKED_MAX,
    REQUEST_BYTES_MAX,
    W_BYTES,
    W_DUE_NS,
    W_FD,
    asks_for,
    new_parked,
    park,
    parked_at,
    unpark,
)

SLOTS = 6
Waiting = tuple[np.ndarray, np.ndarray, np.ndarray]


def add(parked: Waiting, fd: int, request: bytes, slots: list[int], wait_ms: int = 10) -> bool:
    state = np.zeros(STATE_WORDS, np.int64)
    state[STATE_MAX_WAIT_MS], state[STATE_PLACE_COUNT] = wait_ms, len(slots)
    state[STATE_PLACES : STATE_PLACES + len(slots)] = [7 << 32 | slot for slot in slots]
    data = np.frombuffer(b"size" + request, np.uint8)
    return bool(park(parked, fd, data, 4, len(data), state, 0))


def held(parked: Waiting) -> dict[int, tuple[bytes, set[int]]]:
    table, requests, _ = parked
    found = {}
    for row in range(table[PARKED_COUNT]):
        at, start = parked_at(row), row * REQUEST_BYTES_MAX
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
def test_a_waiting_fetch_is_held_until_it_is_removed(
    steps: list[tuple[bytes, list[int]] | int],
) -> None:
    parked = new_parked(SLOTS)
    expected: dict[int, tuple[bytes, set[int]]] = {}
    for fd, step in enumerate(steps):
        if not isinstance(step, int):
            assert add(parked, fd, *step)
            expected[fd] = step[0], set(step[1])
        elif expected:
            row = step % len(expected)
            gone = int(parked[0][parked_at(row) + W_FD])
            unpark(parked, row)
            del expected[gone]
        assert held(parked) == expected
        counts = [sum(slot in slots for _, slots in expected.values()) for slot in range(SLOTS)]
        assert parked[2].tolist() == counts


def test_it_knows_when_the_first_is_due() -> None:
    parked = new_parked(SLOTS)
    assert parked[0][PARKED_DUE_NS] == NEVER_NS
    for wait_ms in (30, 20, 50):
        add(parked, 1, b"x", [0], wait_ms)
    assert parked[0][PARKED_DUE_NS] == parked[0][parked_at(1) + W_DUE_NS] == 20_000_000


def test_a_fetch_without_room_in_the_table_is_refused() -> None:
    parked = new_parked(SLOTS)
    assert not add(parked, 1, b"x" * (REQUEST_BYTES_MAX + 1), [0])
    for fd in range(PARKED_MAX):
        assert add(parked, fd, b"x" * REQUEST_BYTES_MAX, [0])
    assert not add(parked, PARKED_MAX, b"x", [0])
    assert parked[0][PARKED_COUNT] == parked[2][0] == PARKED_MAX
