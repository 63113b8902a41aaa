"""Message sets of formats 0 and 1 against kafka-python's, and malformed ones."""

import struct
import warnings
import zlib
from collections.abc import Sequence
from itertools import product
from typing import Any

import lz4.frame
import pytest
from hypothesis import given, settings, strategies as st

from smq.model.errors import PeerError
from smq.wire.codec import Malformed
from smq.wire.compression import Codec, InflatesTooFar, compress
from smq.wire.legacy.records import (
    LOG_APPEND_TIME,
    OldMessage,
    read_messages,
    with_header_checksum,
    write_message,
    xxh32_of_few,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # As kafka-python reads its schemas.
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

NOW = 1_700_000_000_000
MiB = 1024 * 1024
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
fields = st.none() | st.binary(max_size=100)


def wrapped(
    codec: int, inner: Sequence[OldMessage], *, offset: int = 0, attributes: int = 0
) -> bytes:
    """Messages in a wrapper of their format."""
    value = compress(codec, b"".join(map(write_message, inner)))
    return changed(write_message(inner[0]._replace(offset=offset, value=value)), codec | attributes)


def changed(message: bytes, attributes: int) -> bytes:
    """A message with other attributes."""
    body = message[16:17] + bytes([attributes]) + message[18:]
    return message[:12] + struct.pack(">I", zlib.crc32(body)) + body


def plain(magic: int, offset: int, value: bytes | None = b"v") -> OldMessage:
    return OldMessage(magic, offset, NOW + offset if magic else -1, b"k", value)


@pytest.mark.parametrize(
    ("magic", "codec"),
    # kafka-python writes the LZ4 of format 0 with a library only that is not here.
    [pair for pair in product([0, 1], CODECS) if pair != (0, Codec.LZ4)],
)
def test_message_sets_written_by_kafka_python_are_read(magic: int, codec: Codec) -> None:
    builder = LegacyRecordBatchBuilder(magic, int(codec), MiB)
    said = [(b"k", b"v" * 1000), (None, b"w"), (b"", None)]
    for offset, (key, value) in enumerate(said):
        builder.append(offset, NOW + offset, key, value)
    found = list(read_messages(bytes(builder.build()), MiB))
    assert [(each.key, each.value) for each in found] == said
    assert {each.codec for each in found} == {codec}
    times = [NOW, NOW + 1, NOW + 2] if magic else [-1, -1, -1]
    assert [each.timestamp_ms for each in found] == times


@settings(deadline=None)
@given(
    magic=st.sampled_from([0, 1]),
    rows=st.lists(st.tuples(st.integers(0, 2**62), st.integers(-1, 2**62), fields, fields)),
    appended=st.booleans(),
)
def test_written_message_sets_are_read_by_us_and_by_kafka_python(
    magic: int, rows: list[tuple[int, int, Any, Any]], appended: bool
) -> None:
    said = [
        OldMessage(magic, offset, time if magic else -1, key, value, appended and magic > 0)
        for offset, time, key, value in rows
    ]
    data = b"".join(map(write_message, said))
    assert list(read_messages(data, MiB)) == said
    theirs = []
    for batch in _batches(data):
        assert batch.validate_crc()
        theirs += [(each.offset, each.key, each.value) for each in batch]
    assert theirs == [(each.offset, each.key, each.value) for each in said]


def _batches(data: bytes) -> list[Any]:
    records, found = MemoryRecords(data), []
    while (batch := records.next_batch()) is not None:
        found.append(batch)
    return found


@pytest.mark.parametrize("codec", CODECS[1:], ids=lambda codec: codec.name)
@pytest.mark.parametrize(("magic", "inner"), [(0, [40, 41, 43]), (1, [0, 1, 3])])
def test_offsets_in_a_wrapper_are_absolute_in_0_and_relative_in_1(
    magic: int, inner: list[int], codec: Codec
) -> None:
    data = wrapped(codec, [plain(magic, offset) for offset in inner], offset=43)
    assert [each.offset for each in read_messages(data, MiB)] == [40, 41, 43]
    if not (magic == 0 and codec == Codec.LZ4):  # It takes the broken checksum only.
        assert [each.offset for batch in _batches(data) for each in batch] == [40, 41, 43]


def test_a_wrapper_with_the_time_of_the_append_gives_it_to_all() -> None:
    data = wrapped(Codec.GZIP, [plain(1, 0), plain(1, 1)], offset=1, attributes=LOG_APPEND_TIME)
    found = list(read_messages(data, MiB))
    assert [(each.timestamp_ms, each.is_log_append_time) for each in found] == [(NOW, True)] * 2
    assert [each.timestamp for batch in _batches(data) for each in batch] == [NOW, NOW]


def test_snappy_blocks_of_java_are_read() -> None:
    block = compress(Codec.SNAPPY, write_message(plain(1, 0)))
    value = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    data = changed(write_message(plain(1, 0, value)), Codec.SNAPPY)
    assert [each.value for each in read_messages(data, MiB)] == [b"v"]


@settings(deadline=None)
@given(content=st.binary(max_size=300), sized=st.booleans(), broken=st.integers(0, 255))
def test_a_header_checksum_of_lz4_is_mended(content: bytes, sized: bool, broken: int) -> None:
    frame = lz4.frame.compress(content, store_size=sized, block_linked=False)
    at = 6 + 8 * (sized and len(content) > 0)
    spoiled = frame[:at] + bytes([broken]) + frame[at + 1 :]
    assert with_header_checksum(spoiled) == frame


def test_the_broken_checksum_of_old_clients_is_read_in_format_0() -> None:
    frame = compress(Codec.LZ4, write_message(plain(0, 0)))
    at = 6 + 8 * bool(frame[4] & 8)
    theirs = xxh32_of_few(frame[:at]) >> 8 & 0xFF
    assert theirs != frame[at]
    value = frame[:at] + bytes([theirs]) + frame[at + 1 :]
    data = changed(write_message(plain(0, 0, value)), Codec.LZ4)
    assert [each.value for each in read_messages(data, MiB)] == [b"v"]


def test_the_broken_checksum_is_refused_in_format_1() -> None:
    data = bytearray(compress(Codec.LZ4, write_message(plain(1, 0))))
    at = 6 + 8 * bool(data[4] & 8)
    data[at] ^= 0xFF
    message = changed(write_message(plain(1, 0, bytes(data))), Codec.LZ4)
    with pytest.raises(PeerError):
        list(read_messages(message, MiB))


NESTED = changed(
    write_message(plain(1, 0, compress(Codec.GZIP, wrapped(Codec.GZIP, [plain(1, 0)])))), Codec.GZIP
)
MIXED = changed(
    write_message(plain(1, 0, compress(Codec.GZIP, write_message(plain(0, 0))))), Codec.GZIP
)
BROKEN = {
    "nested": (NESTED, "within a compressed one"),
    "mixed": (MIXED, "another format than its wrapper"),
    "cut": (write_message(plain(1, 0))[:-1], "a message of"),
    "of format 2": (bytes(16) + b"\2" + bytes(60), "a message of"),
    "wrong CRC": (write_message(plain(0, 0))[:-1] + b"?", "a wrong CRC"),
    "zstd": (changed(write_message(plain(1, 0)), Codec.ZSTD), "of compression 4"),
    "null": (changed(write_message(plain(1, 0, None)), Codec.GZIP), "without a value"),
    "empty": (
        changed(write_message(plain(1, 0, compress(Codec.GZIP, b""))), Codec.GZIP),
        "without messages",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_message_set_is_refused(case: str) -> None:
    data, said = BROKEN[case]
    with pytest.raises(Malformed, match=said):
        list(read_messages(data, MiB))


def test_all_wrappers_together_inflate_no_further_than_the_limit() -> None:
    one = wrapped(Codec.GZIP, [plain(1, 0, bytes(600_000))])
    assert len(list(read_messages(one, MiB))) == 1
    with pytest.raises(InflatesTooFar):
        list(read_messages(one + one, MiB))
    with pytest.raises(InflatesTooFar):
        list(read_messages(wrapped(Codec.GZIP, [plain(1, 0, bytes(MiB))]), 4 * MiB))


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_garbage_raises_nothing_but_its_own_error(data: st.DataObject) -> None:
    whole = wrapped(data.draw(st.sampled_from(CODECS[1:])), [plain(1, 0), plain(1, 1)], offset=1)
    start = data.draw(st.integers(0, len(whole)))
    garbage = whole[:start] + data.draw(st.binary(max_size=60)) + whole[start + 5 :]
    try:
        list(read_messages(garbage, MiB))
    except PeerError:
        return
    assert garbage == whole or len(list(read_messages(garbage, MiB))) >= 0
