"""Messages that are walked: protobuf's own parser says what they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.reader.protobuf import (
    IS_BYTES,
    IS_FIXED32,
    IS_FIXED64,
    IS_TEXT,
    IS_VARINT,
    MESSAGE,
    end_of_some,
    last_field,
    last_named,
    walk_message,
)
from smq.agent.proto.mq_broker_pb2 import DataMessage, Header
from smq.agent.proto.mq_schema_pb2 import ListValue, Value

# A Value that has itself in lists: what a schema of two types has.
VALUE = {1: IS_VARINT, 2: IS_VARINT, 3: IS_VARINT, 4: IS_FIXED32, 5: IS_FIXED64, 6: IS_BYTES}
TYPES = np.zeros((2, 16), np.int64)
for number, written in (VALUE | {7: IS_TEXT, 14: MESSAGE + 1}).items():
    TYPES[0, number] = written
TYPES[1, 1] = MESSAGE

scalars = (
    st.builds(Value, int64_value=st.integers(-(2**63), 2**63 - 1))
    | st.builds(Value, bool_value=st.booleans())
    | st.builds(Value, float_value=st.floats(width=32))
    | st.builds(Value, double_value=st.floats())
    | st.builds(Value, bytes_value=st.binary(max_size=200))
    | st.builds(Value, string_value=st.text(max_size=100))
)
values = st.recursive(
    scalars,
    lambda inner: st.builds(
        lambda found: Value(list_value=ListValue(values=found)), st.lists(inner, max_size=4)
    ),
    max_leaves=12,
)
voices = pytest.mark.parametrize(
    "voice", [lambda it: it, lambda it: it.py_func], ids=["compiled", "interpreted"]
)
Voice = Callable[[Any], Any]


def walked(data: bytes, voice: Voice, depth: int = 50) -> int:
    return int(voice(walk_message)(read_only(data), TYPES, np.empty((2, depth), np.int64)))


def is_whole(data: bytes) -> bool:
    """Whether protobuf reads a Value that has only the fields above, each as it is written."""
    try:
        found = Value.FromString(data)
    except DecodeError:
        return False
    found.DiscardUnknownFields()
    return len(found.SerializeToString()) == len(data)


@voices
@settings(deadline=None)
@given(values)
def test_a_message_of_protobufs_is_walked_to_its_end(voice: Voice, value: Value) -> None:
    assert walked(value.SerializeToString(), voice) >= 0


@voices
@settings(deadline=None)
@given(values, st.integers(0, 10**6), st.binary(max_size=3), st.integers(0, 3))
@example(Value(string_value="é"), 3, b"", 1)
@example(Value(int64_value=-1), 10, b"\x02", 1)
def test_the_walk_accepts_nothing_that_protobuf_refuses(
    voice: Voice, value: Value, place: int, more: bytes, fewer: int
) -> None:
    written = bytes(value.SerializeToString())
    at = place % (len(written) + 1)
    data = written[:at] + more + written[at + fewer :]
    count = walked(data, voice)
    if count >= 0:
        Value.FromString(data)
    else:
        assert 0 <= ~count < len(data)
        # 8 to 11 and 15 are fields of a Value, and none of those above.
        assert not is_whole(data) or walked_by_protobuf(data)


def walked_by_protobuf(data: bytes) -> bool:
    """Whether a value has, anywhere, a kind that is not among the types above."""
    text = str(Value.FromString(data))
    return any(
        f"{name}_value" in text for name in ("timestamp", "date", "decimal", "time", "record")
    )


@voices
@pytest.mark.parametrize(
    "data",
    [
        b"\x00", b"\x07\x01",  # Field 0.
        b"\x78\x01", b"\xf8\x07\x01",  # Fields 15 and 127, which no type has.
        b"\x09" + bytes(8),  # A bool of 8 bytes.
        b"\x0b\x0c",  # A group.
        b"\x08" + b"\x80" * 10 + b"\x00", b"\x08" + b"\xff" * 9 + b"\x02",  # More than 64 bits.
        b"\x32\x05abc", b"\x25abc", b"\x29abcdefg", b"\x08\x80",  # Cut.
        b"\x3a\x01\xff", b"\x3a\x02\xc0\x80", b"\x3a\x03\xed\xa0\x80",  # No UTF-8.
        b"\x72\x02\x0a\x05", b"\x72\x02\x10\x01",  # In a list.
        b"\xff\xff\xff\xff\xff\x01", b"\x32\xff\xff\xff\xff\xff\x01",  # A tag, a length.
    ],
)  # fmt: skip
def test_the_walk_stops_where_a_field_is_not_of_its_type(voice: Voice, data: bytes) -> None:
    assert ~walked(data, voice) == (2 if data[0] == 0x72 else 0)


@voices
def test_all_fields_are_counted_and_empty_messages_are_some(voice: Voice) -> None:
    assert walked(b"", voice) == 0
    assert walked(b"\x72\x06" + b"\x0a\x00" * 3, voice) == 4


@voices
def test_messages_are_nested_as_deep_as_there_is_room(voice: Voice) -> None:
    data = b"\x08\x01"
    for _ in range(3):
        data = b"\x0a" + bytes([len(data)]) + data
        data = b"\x72" + bytes([len(data)]) + data
    assert walked(data, voice, depth=6) == 7
    assert walked(data, voice, depth=5) < 0
    assert walked(b"\x72\x02\x0a\x00", voice, depth=1) < 0, "an empty message is one deeper, too"


@voices
def test_the_last_field_of_a_number_is_found(voice: Voice) -> None:
    data = b"\x08\x01" + b"\x12\x02ab" + b"\x08\x05" + b"\x12\x01c"
    found = voice(last_field)
    assert found(read_only(data), 0, len(data), 1) == (2, 8, 6, 7, 8)
    assert found(read_only(data), 0, len(data), 2) == (2, 18, 8, 10, 11)
    assert found(read_only(data), 0, len(data), 0) == (4, 18, 8, 10, 11)
    assert found(read_only(data), 0, len(data), 3) == (0, 0, 0, 0, 0)
    assert found(read_only(data), 0, 4, 1)[0] == 1, "what is cut behind it is not looked at"


@voices
@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "ab"]), st.binary(max_size=3))))
def test_the_last_header_of_a_name_is_found(voice: Voice, found: list[tuple[str, bytes]]) -> None:
    headers = [Header(key=name, value=value) for name, value in found]
    data = DataMessage(headers=headers).SerializeToString()
    names = ("", "a", "ab", "b", "c")
    ends, places = np.array([0, 0, 1, 3, 4, 5]), np.empty((2, len(names)), np.int64)
    voice(last_named)(read_only(data), 1001, read_only("".join(names).encode()), ends, places)
    for name, at, end in zip(names, *places.tolist(), strict=True):
        last = next((each for each in reversed(headers) if each.key == name), None)
        assert (at < 0) == (last is None)
        assert last is None or Header.FromString(data[at:end]) == last


@voices
@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(1, 100))
def test_some_fields_have_at_most_so_many_bytes(
    voice: Voice, found: list[bytes], bytes_max: int
) -> None:
    data = ListValue(values=[Value(bytes_value=each) for each in found]).SerializeToString()
    at, items = 0, list[bytes]()
    while at < len(data):
        end = voice(end_of_some)(read_only(data), at, len(data), bytes_max)
        part = ListValue.FromString(data[at:end]).values
        items += [each.bytes_value for each in part]
        assert end - at <= bytes_max or len(part) == 1
        at = end
    assert items == found
