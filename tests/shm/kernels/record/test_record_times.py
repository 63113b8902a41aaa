"""A record that reaches a time is found as a plain reader finds it, however its batch is cut."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.record.record_times import (
    ENDED,
    FOUND,
    HEAD_BYTES_MAX,
    MALFORMED,
    MORE,
    NO_TIME,
    STATE_AT,
    STATE_LEFT,
    STATE_OFFSET,
    STATE_TIMESTAMP,
    find_record_time,
    new_search,
)
from smq.wire.records import Record, read_batches, write_batch

BASE, TIME = 1000, 1_600_000_000_000
Wanted = tuple[int, int, int]

records = st.lists(
    st.builds(
        lambda offset, ms, size: (offset, TIME + ms, bytes(size)),
        st.integers(0, 3),
        st.one_of(st.integers(-5, 5), st.integers(-(2**40), 2**40)),
        st.sampled_from([0, 1, 20, 300]),
    ),
    min_size=1,
    max_size=12,
)


def batch_of(rows: list[tuple[int, int, bytes]]) -> tuple[bytes, int]:
    """The records' bytes of a batch, and its base timestamp."""
    made, offset = [], BASE
    for gap, time, value in rows:
        made.append(Record(offset, time, None, value))
        offset += 1 + gap
    [batch] = read_batches(write_batch(made))
    return bytes(batch.data[61:]), batch.base_timestamp


def plainly(rows: list[tuple[int, int, bytes]], wanted: Wanted) -> tuple[int, int] | None:
    """The twin: offset and time of the first record that is wanted."""
    timestamp, first, behind = wanted
    offset = BASE
    for gap, time, _ in rows:
        if time >= timestamp and first <= offset < behind:
            return offset, time
        offset += 1 + gap
    return None


def looked_for(
    pieces: Iterator[bytes], state: np.ndarray, batch: tuple[int, int, int], wanted: Wanted
) -> int:
    """What comes of a search in these pieces."""
    rest, outcome = b"", MORE
    for piece in pieces:
        data = rest + piece
        outcome = find_record_time(np.frombuffer(data, np.uint8), state, batch, wanted)
        if outcome != MORE:
            break
        at = min(int(state[STATE_AT]), len(data))
        rest = data[at:]
        state[STATE_AT] -= at
        assert len(rest) < HEAD_BYTES_MAX
    return outcome


@settings(deadline=None)
@given(records, st.tuples(st.integers(-6, 6), st.integers(-1, 40), st.integers(0, 60)), st.data())
def test_a_record_is_found_as_by_the_twin_however_its_batch_is_cut(
    rows: list[tuple[int, int, bytes]], wants: Wanted, data: st.DataObject
) -> None:
    payload, base_time = batch_of(rows)
    wanted = (TIME + wants[0], BASE + wants[1], BASE + wants[2])
    size = data.draw(st.integers(1, len(payload)))
    pieces = (payload[at : at + size] for at in range(0, len(payload), size))
    state = new_search(len(rows))
    outcome = looked_for(pieces, state, (BASE, base_time, NO_TIME), wanted)
    expected = plainly(rows, wanted)
    assert outcome == (ENDED if expected is None else FOUND)
    if expected is not None:
        assert (state[STATE_OFFSET], state[STATE_TIMESTAMP]) == expected
    else:
        assert state[STATE_LEFT] == 0


def test_the_append_time_of_a_batch_is_that_of_all_its_records() -> None:
    payload, base_time = batch_of([(0, TIME, b""), (0, TIME + 5, b"")])
    for timestamp, outcome in ((TIME + 9, FOUND), (TIME + 10, ENDED)):
        state = new_search(2)
        batch, wanted = (BASE, base_time, TIME + 9), (timestamp, BASE + 1, BASE + 2)
        assert looked_for(iter([payload]), state, batch, wanted) == outcome
    state = new_search(2)
    assert looked_for(iter([payload]), state, (BASE, base_time, TIME + 9), (0, 0, 9999)) == FOUND
    assert (state[STATE_OFFSET], state[STATE_TIMESTAMP]) == (BASE, TIME + 9)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a\0\0\0\1\1" + bytes(40),  # Shorter than any record.
        b"\xff" * 40,  # A length that does not end.
        b"\x0c\0" + b"\xff" * 40,  # A timestamp that does not end.
        b"\x0c\0" + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1" + bytes(40),  # A head of its own.
        b"\x01" + bytes(40),  # A negative length.
        b"\x18\0" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1" + bytes(40),  # A time of 65 bits.
    ],
)
def test_a_truncated_record_is_malformed(payload: bytes) -> None:
    assert looked_for(iter([payload]), new_search(1), (0, 1, NO_TIME), (0, 0, 9)) == MALFORMED


@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(-3, 20))
def test_garbage_ends_the_search(garbage: bytes, count: int) -> None:
    state = new_search(count)
    data = np.frombuffer(garbage, np.uint8)
    outcome = find_record_time(data, state, (0, 0, NO_TIME), (2**62, 0, 9))
    assert outcome in {ENDED, MORE, MALFORMED}
    interpreted = new_search(count)
    again = find_record_time.py_func  # type: ignore[attr-defined]
    assert again(data, interpreted, (0, 0, NO_TIME), (2**62, 0, 9)) == outcome
    assert (interpreted == state).all()
