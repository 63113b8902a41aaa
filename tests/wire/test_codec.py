"""Primitive types at their edges, and the writer's pieces."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import PeerError
from smq.wire import codec
from smq.wire.codec import Malformed, Writer
from smq.wire.generated.fetch import FetchPartition, FetchTopic


class Loan(NamedTuple):
    """Memory of somebody else."""

    length: int


def written(write: Callable[..., None], value: object) -> bytes:
    writer = Writer()
    write(writer.append, value)
    return writer.to_bytes()


NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    f"int{bits}": st.lists(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)).map(tuple)
    for bits in (8, 32, 64)
}
FORMS: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("unsigned_varint", st.integers(0, 2**35 - 1)),
    ("string", st.text(max_size=200)),
    ("compact_string", st.text(max_size=200)),
    ("nullable_string", st.none() | st.text(max_size=200)),
    ("compact_nullable_string", st.none() | st.text(max_size=200)),
    ("bytes", st.binary(max_size=200)),
    ("compact_bytes", st.binary(max_size=200)),
    ("nullable_records", st.none() | st.binary(max_size=200)),
    ("compact_nullable_records", st.none() | st.binary(max_size=200)),
    ("uuid", st.uuids()),
    ("int8_array", NUMBERS["int8"]),
    ("compact_int8_array", NUMBERS["int8"]),
    ("int32_array", NUMBERS["int32"]),
    ("compact_int32_array", NUMBERS["int32"]),
    ("compact_nullable_int32_array", st.none() | NUMBERS["int32"]),
    ("int64_array", NUMBERS["int64"]),
    ("compact_int64_array", NUMBERS["int64"]),
]


@pytest.mark.parametrize("form", [name for name, _ in FORMS])
@given(data=st.data())
def test_a_written_value_is_read_back(form: str, data: st.DataObject) -> None:
    value = data.draw(dict(FORMS)[form])
    encoded = written(getattr(codec, f"write_{form}"), value)
    for buffer in (encoded, memoryview(encoded)):
        assert getattr(codec, f"read_{form}")(buffer, 0) == (value, len(encoded))


@pytest.mark.parametrize("form", [name for name, _ in FORMS])
@given(data=st.data())
def test_a_truncated_value_is_refused(form: str, data: st.DataObject) -> None:
    encoded = written(getattr(codec, f"write_{form}"), data.draw(dict(FORMS)[form]))
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises((Malformed, *codec.READ_ERRORS)):
        getattr(codec, f"read_{form}")(cut, 0)


def test_a_varint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(Malformed, match="unterminated varint"):
        codec.read_unsigned_varint(b"\x80\x80\x80\x80\x80\x01", 0)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (codec.read_string, b"\xff\xff"),
        (codec.read_compact_string, b"\x00"),
        (codec.read_bytes, b"\xff\xff\xff\xff"),
        (codec.read_compact_bytes, b"\x00"),
        (codec.read_count, b"\xff\xff\xff\xff"),
        (codec.read_compact_count, b"\x00"),
    ],
)
def test_null_where_there_must_be_a_value_is_refused(
    read: Callable[[bytes, int], object], data: bytes
) -> None:
    with pytest.raises(Malformed, match="null"):
        read(data, 0)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (codec.read_nullable_string, b"\xff\xfe"),
        (codec.read_nullable_count, b"\xff\xff\xff\xfe"),
        (codec.read_nullable_count, b"\x7f\xff\xff\xff...."),
        (codec.read_compact_nullable_count, b"\xff\xff\xff\xff\x0f...."),
        (codec.read_nullable_records, b"\x80\x00\x00\x00"),
    ],
)
def test_lengths_that_cannot_be_are_refused(
    read: Callable[[bytes, int], object], data: bytes
) -> None:
    with pytest.raises(Malformed, match="a length of"):
        read(data, 0)


def test_text_longer_than_kafka_reads_is_refused_in_either_form() -> None:
    for length in (codec.STRING_BYTES_MAX, codec.STRING_BYTES_MAX + 1):
        data = written(codec.write_compact_string, "x" * length)
        for read in (codec.read_compact_string, codec.read_compact_nullable_string):
            if length == codec.STRING_BYTES_MAX:
                assert read(data, 0) == ("x" * length, len(data))
            else:
                with pytest.raises(Malformed, match="a string of 32768 bytes"):
                    read(data, 0)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (lambda data: len(data).to_bytes(2), codec.read_string),
        (lambda data: len(data).to_bytes(2), codec.read_nullable_string),
        (
            lambda data: written(codec.write_unsigned_varint, len(data) + 1),
            codec.read_compact_string,
        ),
        (
            lambda data: written(codec.write_unsigned_varint, len(data) + 1),
            codec.read_compact_nullable_string,
        ),
    ],
)
def test_bytes_that_are_no_utf_8_make_no_text_that_cannot_be_answered(
    write: Callable[[bytes], bytes], read: Callable[[bytes, int], tuple[str, int]]
) -> None:
    """One such name of a group had ListGroups fail for everybody."""
    most = codec.STRING_BYTES_MAX // 3
    data = b"\xff" * most
    text, end = read(write(data) + data, 0)
    assert (text, end) == ("\ufffd" * most, len(write(data) + data))
    for data in (b"\xff" * (most + 1), b"\xff" * codec.STRING_BYTES_MAX):
        with pytest.raises(Malformed, match="no UTF-8 and too long"):
            read(write(data) + data, 0)
    data = "\ufffd".encode() * most
    assert read(write(data) + data, 0)[0] == "\ufffd" * most


def test_a_structure_has_few_tagged_fields() -> None:
    for count in (codec.TAGS_MAX, codec.TAGS_MAX + 1):
        data = bytes([count]) + b"\x7f\0" * count
        if count == codec.TAGS_MAX:
            assert codec.skip_tags(data, 0) == len(data)
        else:
            with pytest.raises(Malformed, match="101 tagged fields"):
                codec.skip_tags(data, 0)


def test_an_array_of_numbers_is_bounded() -> None:
    data = (codec.NUMBERS_MAX + 1).to_bytes(4) + bytes(4 * (codec.NUMBERS_MAX + 1))
    with pytest.raises(Malformed, match="an array of 65537 numbers"):
        codec.read_int32_array(data, 0)


@pytest.mark.parametrize(("structure", "data"), [(None, b"\xff"), (codec.Message(), b"\x01")])
def test_a_structure_may_be_null(structure: codec.Message | None, data: bytes) -> None:
    assert written(codec.write_presence, structure) == data
    assert codec.read_presence(data, 0) == (structure is not None, 1)


def test_malformed_means_close_the_connection() -> None:
    assert issubclass(Malformed, PeerError)


def test_text_that_is_not_utf8_is_read_with_replacement_characters_as_in_kafka() -> None:
    assert codec.read_string(b"\x00\x03a\xffb", 0) == ("a\ufffdb", 5)


def test_records_are_views_of_the_buffer() -> None:
    buffer = bytearray(b"\x00\x00\x00\x03abc")
    records, _ = codec.read_nullable_records(memoryview(buffer), 0)
    assert records is not None
    buffer[4] = ord("x")
    assert bytes(records) == b"xbc"


def test_a_uuid_that_comes_again_is_the_same_object() -> None:
    raw = UUID(int=7).bytes
    assert codec.read_uuid(raw, 0)[0] is codec.read_uuid(raw, 0)[0]


def test_pieces_are_joined_up_to_what_is_lent() -> None:
    writer, loan = Writer(), Loan(1000)
    writer.append(b"ab")
    writer.append(memoryview(b"c"))
    codec.write_nullable_records(writer.append, loan)
    codec.write_compact_nullable_records(writer.append, bytearray(b"xyz"))
    assert writer.pieces() == [b"abc\x00\x00\x03\xe8", loan, b"\x04xyz"]


def test_pieces_that_are_large_are_not_copied_and_small_ones_become_few() -> None:
    large, small = bytes(100_000), [bytes([i % 256]) * 1000 for i in range(1000)]
    pieces = codec.joined([b"a", b"b", large, *small, large, b"c"])
    assert b"".join(pieces) == b"ab" + large + b"".join(small) + large + b"c"
    assert (pieces[0], pieces[-1]) == (b"ab", b"c")
    assert pieces[1] is large
    assert pieces[-2] is large
    assert len(pieces) < 25
    assert max(map(len, pieces)) == len(large)


def test_a_frame_begins_with_the_size_of_all_pieces() -> None:
    writer, loan = Writer(), Loan(1000)
    writer.append(b"ab")
    writer.append(loan)
    assert writer.framed() == [b"\x00\x00\x03\xeaab", loan]
    assert Writer().framed() == [b"\x00\x00\x00\x00"]


def test_tagged_fields_carry_their_length() -> None:
    writer, tags = Writer(), codec.Tags()
    codec.write_compact_string(tags.add(3), "ab")
    tags.write(writer.append)
    data = writer.to_bytes()
    assert data == b"\x01\x03\x03\x03ab"
    assert codec.read_tag(data, 1) == (3, 3, 6)
    assert codec.skip_tags(data, 0) == 6


def test_messages_are_compared_by_value_across_sequence_types() -> None:
    one = FetchTopic(topic="a", partitions=[FetchPartition(partition=1)])
    assert one == FetchTopic(topic="a", partitions=(FetchPartition(partition=1),))
    assert one != FetchTopic(topic="a", partitions=[FetchPartition(partition=2)])
    assert one != "a"
    assert "topic='a'" in repr(one)
