"""Records as protobuf's messages: those that protobuf itself writes."""

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.reader.messages import (
    MESSAGE_REST_BYTES,
    MS_NS,
    TIME_MS_MAX,
    headers_bytes,
    write_headers,
    write_messages,
)
from shm.kernels.record.records import C_VALUE_AT
from shm.kernels.twin.records import PlainRecord, varint
from smq.agent.proto.mq_broker_pb2 import DataMessage, FetchMessageResponse, Header
from tests.shm.kernels.record.test_records_encode import rows_of

FIELD = st.none() | st.binary(max_size=5) | st.binary(min_size=120, max_size=400)
TIME_MS = st.sampled_from([-(2**63), -1, 0, 1, 1_790_000_000_123, TIME_MS_MAX, TIME_MS_MAX + 1])


def records(fields: list[tuple[bytes | None, bytes | None, int]], first: int) -> list[PlainRecord]:
    found = enumerate(fields, start=first)
    return [PlainRecord(offset, time, key, value) for offset, (key, value, time) in found]


def written(found: list[PlainRecord], room: int, first: int = 0) -> tuple[int, bytes]:
    rows = rows_of(found)
    # Keys and values lie in one memory, as those of a chunk do.
    columns = rows.columns.copy()
    columns[C_VALUE_AT] += len(rows.keys)
    data = np.concatenate([rows.keys, rows.values])
    data.flags.writeable = False
    out = np.zeros(room, np.uint8)
    row, size = write_messages(data, columns, first, len(found), out)
    return row, out[:size].tobytes()


def message(record: PlainRecord) -> DataMessage:
    return DataMessage(
        key=record.key or b"",
        value=record.value or b"",
        ts_ns=max(-TIME_MS_MAX, min(record.timestamp, TIME_MS_MAX)) * MS_NS,
        offset=record.offset,
    )


def expected(found: list[PlainRecord]) -> bytes:
    data: bytes = FetchMessageResponse(messages=map(message, found)).SerializeToString()
    return data


@settings(deadline=None)
@given(
    st.lists(st.tuples(FIELD, FIELD, TIME_MS), min_size=1, max_size=6),
    st.sampled_from([0, 1, 127, 128, 2**40]),
    st.integers(0, 3000),
)
def test_messages_are_those_of_protobuf_and_as_many_as_there_is_room_for(
    fields: list[tuple[bytes | None, bytes | None, int]], first: int, room: int
) -> None:
    found = records(fields, first)
    ends = [len(expected(found[:count])) for count in range(len(found) + 1)]
    count = max(number for number, end in enumerate(ends) if end <= room)
    assert written(found, room) == (count, expected(found[:count]))
    for before, after, record in zip(ends, ends[1:], found, strict=False):
        own = len(record.key or b"") + len(record.value or b"")
        assert after - before <= own + MESSAGE_REST_BYTES


def test_a_gap_and_a_record_with_headers_end_the_messages() -> None:
    found = records([(b"k", b"v", 5)] * 4, 7)
    with_headers = [*found[:2], found[2]._replace(headers=((b"h", None),)), found[3]]
    assert written(with_headers, 1000) == (2, expected(found[:2]))
    assert written(with_headers, 1000, first=2) == (2, b"")
    behind_a_gap = [*found[:3], found[3]._replace(offset=11)]
    assert written(behind_a_gap, 1000) == (3, expected(found[:3]))
    assert written(behind_a_gap, 1000, first=3) == (4, expected(behind_a_gap[3:]))


KEY = st.sampled_from([b"", b"a", "grün€😀".encode(), b"x" * 200]) | st.binary(max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(KEY, FIELD), max_size=6), st.integers(0, 5))
def test_headers_are_those_of_protobuf(found: list[tuple[bytes, bytes | None]], first: int) -> None:
    before, wanted = (_as_in_a_record(each) for each in (found[:first], found[first:]))
    data = np.frombuffer(before + wanted, np.uint8)
    compiled: Any = (headers_bytes, write_headers)
    for size_of, write in (compiled, [each.py_func for each in compiled]):
        size = size_of(data, len(before), len(found[first:]))
        out = np.zeros(size, np.uint8)
        assert write(data, len(before), len(found[first:]), out) == size
        expected = [Header(key=replaced(key), value=value) for key, value in found[first:]]
        assert out.tobytes() == DataMessage(headers=expected).SerializeToString()


def _as_in_a_record(headers: list[tuple[bytes, bytes | None]]) -> bytes:
    fields = (each for header in headers for each in header)
    return b"".join(varint(-1) if each is None else varint(len(each)) + each for each in fields)


def replaced(key: bytes) -> str:
    """A key as text; each byte that begins no character is U+FFFD."""
    text = key.decode("utf-8", "surrogateescape")
    return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)
