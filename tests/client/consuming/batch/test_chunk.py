"""Batches cut into records: the same as a plain reader's, and up to the first that is broken."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.twin.records import PlainRecord, batch
from smq.client.consuming.batch.chunk import Chunk, CutStop, PollRoom, cut
from smq.client.errors import BatchReleased
from smq.testing.records import plain_batches
from smq.wire.compression import Codec, compress
from smq.wire.records import Record, write_batch
from tests.client.batches import NAME, Plain, batches_of, expected, plain_of

VALUES = [Record(each, 1000 + each, b"k%d" % each, b"v" * 50, ()) for each in range(5)]
PLAIN, ZSTD = (write_batch(VALUES, compression=codec) for codec in (Codec.NONE, Codec.ZSTD))


def moved(data: bytes, base_offset: int) -> bytes:
    return base_offset.to_bytes(8) + data[8:]


@settings(deadline=None)
@given(plain_batches(), st.integers(0, 30), st.booleans())
def test_records_are_those_of_the_plain_reader(
    sent: list[bytes], start: int, is_lent: bool
) -> None:
    data = b"".join(sent)
    chunks, good = cut(batches_of(data, start, is_lent=is_lent), PollRoom(64 << 20))
    assert good == len(sent)
    found = [plain_of(record) for chunk in chunks for record in chunk.records()]
    assert found == expected(data, start)
    copies = [plain_of(record) for chunk in chunks for record in chunk.copy().records()]
    assert copies == found


def test_compressed_batches_are_cut_in_order_with_plain_ones() -> None:
    data = b"".join(moved(each, 5 * i) for i, each in enumerate([PLAIN, ZSTD, ZSTD, PLAIN]))
    chunks, good = cut(batches_of(data, 7), PollRoom(64 << 20))
    assert good == 4
    found = [plain_of(record) for chunk in chunks for record in chunk.records()]
    assert found == expected(data, 7)
    assert chunks[0].memory is not chunks[1].memory


@pytest.mark.parametrize("taken", range(6))
def test_the_next_run_skips_unread_records_of_the_last(taken: int) -> None:
    (chunk,), _ = cut(batches_of(PLAIN + moved(PLAIN, 5)), PollRoom(64 << 20))
    offsets = [[record.offset for record in islice(run, taken)] for _, run in chunk.runs()]
    assert offsets == [[*range(5)][:taken], [*range(5, 10)][:taken]]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("kind", ["crc", "inside", "count", "inflated", "bomb"])
def test_a_broken_batch_ends_what_is_cut(place: int, kind: str) -> None:
    whole = [moved(PLAIN, 5 * each) for each in range(3)]
    whole[place] = moved(broken(kind), 5 * place)
    chunks, good = cut(batches_of(b"".join(whole)), PollRoom(64 << 20))
    assert good == place
    assert sum(map(len, chunks)) == 5 * place


def broken(kind: str) -> bytes:
    record = PlainRecord(0, 0, None, b"v")
    match kind:
        case "crc":
            return PLAIN[:-1] + b"?"
        case "inside":
            return batch([record], end_offset=5, inflated=b"\x20" + bytes(15))
        case "count":
            return batch([record] * 9, end_offset=5, inflated=b"\x01")
        case "inflated":
            return batch([record], end_offset=5, attributes=Codec.ZSTD, inflated=b"no zstd")
    bomb = compress(Codec.ZSTD, bytes(65 << 20))
    return batch([record], end_offset=5, attributes=Codec.ZSTD, inflated=bomb)


def test_the_log_gives_the_time_where_it_says_so() -> None:
    records = [PlainRecord(each, 10 * each, None, None) for each in range(3)]
    data = batch(records, end_offset=3, attributes=8)
    ((chunk,), _) = cut(batches_of(data), PollRoom(64 << 20))
    assert [record.timestamp_ms for record in chunk.records()] == [20, 20, 20]


def test_records_know_their_partition_and_values_where_they_lie() -> None:
    batches = batches_of(PLAIN)
    ((chunk,), _) = cut(batches, PollRoom(64 << 20))
    record = list(chunk.records())[4]
    assert (record.topic, record.partition) == NAME
    assert chunk.partition_of(0) == NAME
    assert np.shares_memory(np.frombuffer(record.value or b"", np.uint8), batches.memory)


def test_a_released_chunk_gives_nothing() -> None:
    ((chunk,), _) = cut(batches_of(PLAIN), PollRoom(64 << 20))
    record = next(chunk.records())
    chunk.release()
    for field in ("key", "value", "headers"):
        with pytest.raises(BatchReleased):
            getattr(record, field)
    assert record.offset == 0


def test_header_keys_that_are_no_text_come_back() -> None:
    data = write_batch([Record(0, 0, None, None, ((b"\xff", b"1"),))])
    ((chunk,), _) = cut(batches_of(data), PollRoom(64 << 20))
    ((key, value),) = next(chunk.records()).headers
    assert (key.encode(errors="surrogateescape"), value) == (b"\xff", b"1")


def test_headers_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("chunk", "headers"):
        monkeypatch.setattr(f"smq.client.consuming.batch.{module}.HEADERS_AT_ONCE", 2)
    counts = (0, 1, 5, 4)
    sent = [
        Record(n, 0, None, None, tuple((b"h%d" % each, None) for each in range(count)))
        for n, count in enumerate(counts)
    ]
    ((chunk,), _) = cut(batches_of(write_batch(sent)), PollRoom(64 << 20))
    for record, count in zip(chunk.records(), counts, strict=True):
        assert len(record.headers) == count
        assert tuple(record.each_header()) == record.headers
    headers = record.each_header()
    chunk.release()
    with pytest.raises(BatchReleased):
        next(headers)


def test_a_lent_chunk_is_copied_batch_by_batch() -> None:
    data = b"".join(moved(PLAIN, 5 * each) for each in range(3))
    batches = batches_of(data, is_lent=True)
    backwards = np.ascontiguousarray(batches.facts[:, ::-1])  # As a ring that has wrapped has them.
    ((chunk,), _) = cut(batches._replace(facts=backwards), PollRoom(64 << 20))
    copy = chunk.copy()
    assert isinstance(copy, Chunk)
    assert not np.shares_memory(copy.memory, batches.memory)
    assert [plain_of(each) for each in copy.records()] == [plain_of(e) for e in chunk.records()]


def of_headers(count: int, codec: Codec = Codec.ZSTD) -> bytes:
    """A small batch of one record with headers of two bytes each."""
    return write_batch([Record(0, 0, None, None, ((b"", None),) * count)], compression=codec)


def of_records(count: int, codec: Codec = Codec.ZSTD) -> bytes:
    """A small batch of records of seven bytes each, or a few more."""
    return write_batch([Record(each, 0, None, None) for each in range(count)], compression=codec)


def test_a_batch_whose_headers_take_more_than_the_room_ends_what_is_cut() -> None:
    room = PollRoom(64 << 10)
    within, beyond = of_headers(2000), of_headers(2049)  # 32 bytes each.
    chunks, good = cut(batches_of(within + moved(within, 1) + moved(beyond, 2)), room)
    assert (good, room.stop) == (1, CutStop.FULL)
    assert [chunk.headers.nbytes for chunk in chunks] == [64_000]
    room.renew()
    chunks, good = cut(batches_of(moved(beyond, 2) + moved(within, 3)), room)
    assert (chunks, good, room.stop) == ([], 0, CutStop.BEYOND)


def test_a_batch_whose_records_take_more_than_the_room_ends_what_is_cut() -> None:
    room = PollRoom(64 << 10)
    within, beyond = of_records(910), of_records(911)  # 72 bytes each.
    chunks, good = cut(batches_of(within + moved(beyond, 910)), room)
    assert (good, room.stop) == (1, CutStop.FULL)
    assert [len(chunk) for chunk in chunks] == [910]
    room.renew()
    chunks, good = cut(batches_of(moved(beyond, 910)), room)
    assert (chunks, good, room.stop) == ([], 0, CutStop.BEYOND)


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (of_headers(2000, Codec.NONE), of_headers(2049, Codec.NONE)),
        (of_records(910, Codec.NONE), of_records(911, Codec.NONE)),
    ],
    ids=["headers", "records"],
)
def test_batches_that_are_not_compressed_are_bounded_likewise(within: bytes, beyond: bytes) -> None:
    room, count = PollRoom(64 << 10), len(expected(within))
    sent = [moved(within, each * count) for each in range(3)]
    chunks, good = cut(batches_of(b"".join(sent)), room)
    assert (good, room.stop) == (2, CutStop.FULL)  # The second begins within the room.
    found = [plain_of(record) for chunk in chunks for record in chunk.records()]
    assert found == expected(b"".join(sent[:2]))
    room.renew()
    batches = batches_of(beyond + moved(within, 2000))
    before = batches.facts.copy()
    assert (*cut(batches, room), room.stop) == ([], 0, CutStop.BEYOND)
    assert (batches.facts == before).all()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.sampled_from([Codec.NONE, Codec.ZSTD])),
        min_size=1,
        max_size=8,
    ),
    st.integers(72, 1000),
)
def test_every_batch_is_given_or_beyond_the_room(
    shapes: list[tuple[int, int, Codec]], bytes_max: int
) -> None:
    sent, beyond = list[bytes](), list[int]()
    for place, (records, headers, codec) in enumerate(shapes):
        each = [Record(n, 0, None, b"v", ((b"h", None),) * headers) for n in range(records)]
        sent.append(moved(write_batch(each, compression=codec), 10 * place))
        if 32 * headers * records > bytes_max or 72 * records > bytes_max:
            beyond.append(place)
    room, found, skipped, first = PollRoom(bytes_max), list[Plain](), list[int](), 0
    while first < len(sent):
        room.renew()
        chunks, good = cut(batches_of(b"".join(sent[first:])), room)
        assert all(chunk.headers.nbytes <= bytes_max for chunk in chunks)
        assert all(chunk.columns.nbytes <= bytes_max for chunk in chunks)
        found += [plain_of(record) for chunk in chunks for record in chunk.records()]
        first += good
        if not good:
            assert room.stop is CutStop.BEYOND
            skipped.append(first)
            first += 1
    assert skipped == beyond
    assert found == expected(b"".join(each for n, each in enumerate(sent) if n not in beyond))
