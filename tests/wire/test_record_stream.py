"""Records of a batch while it inflates: the same as all at once."""

import pytest
from hypothesis import example, given, settings, strategies as st

from shm.kernels.twin.records import PlainRecord, batch as plain_batch
from smq.model.errors import PeerError
from smq.testing.records import plain_batches
from smq.wire.codec import Malformed
from smq.wire.compression import Codec, InflatesTooFar
from smq.wire.record_stream import RECORDS_A_STEP, InflationLimits, _Reader, records_from
from smq.wire.records import BatchView, Record, read_batches, write_batch

KiB = 1024
BEFORE_ALL = -(2**32)  # Garbage may have negative offsets; what is passed over is not parsed.
LIMITS = InflationLimits(4 * KiB * KiB, KiB * KiB)


def batch_of(values: list[bytes], codec: Codec = Codec.GZIP) -> BatchView:
    records = [Record(each, 7, None, value) for each, value in enumerate(values)]
    [batch] = read_batches(write_batch(records, compression=codec))
    return batch


def read(batch: BatchView, start: int = 0, limits: InflationLimits = LIMITS) -> list[Record]:
    return [each for each in records_from(batch, start, limits) if each is not None]


@settings(deadline=None)
@given(plain_batches(), st.integers(0, 30))
def test_records_are_those_of_the_whole_batch(sent: list[bytes], start: int) -> None:
    for batch in read_batches(b"".join(sent)):
        wanted = [each for each in batch.records() if each.offset >= start]
        assert read(batch, start) == wanted


@given(st.lists(st.binary(max_size=50), min_size=1), st.integers(1, 40), st.integers(0, 5))
def test_records_are_the_same_however_they_are_cut(
    values: list[bytes], size: int, start: int
) -> None:
    """Data fault 16: readers inflate in pieces."""
    batch = batch_of(values, Codec.NONE)
    reader, found = _Reader(batch, start, KiB), list[Record | None]()
    payload = batch.data[61:]
    for at in range(0, len(payload), size):
        found += reader.read(payload[at : at + size])
    assert reader.is_done
    wanted = [each for each in batch.records() if each.offset >= start]
    assert [each for each in found if each is not None] == wanted


@example(bytes.fromhex("0e00000100000000"), 1)
@given(st.binary(max_size=60), st.integers(1, 9))
def test_garbage_is_malformed(garbage: bytes, count: int) -> None:
    record = PlainRecord(0, 0, None, b"v")
    [batch] = read_batches(plain_batch([record] * count, end_offset=count, inflated=garbage))
    try:
        found = read(batch, BEFORE_ALL)
    except PeerError:
        return
    assert found == list(batch.records())


def test_a_record_that_is_too_large_is_refused_where_it_is_wanted_and_passed_elsewhere() -> None:
    """Data fault 16: no other record becomes unreadable."""
    batch = batch_of([b"a", bytes(2 * KiB * KiB), b"c"])
    given = records_from(batch, 0, LIMITS)
    first = next(given)
    assert first is not None
    assert first.value == b"a"
    with pytest.raises(InflatesTooFar, match="the record at offset 1 has 2097"):
        list(given)
    assert [each.offset for each in read(batch, 2)] == [2]


def test_skipping_records_takes_steps() -> None:
    """Data fault 16: a fetch passes millions of records in steps."""
    batch = batch_of([b""] * 10 * RECORDS_A_STEP)
    assert [*records_from(batch, 10 * RECORDS_A_STEP, LIMITS)].count(None) >= 10


def test_a_record_in_many_small_pieces_is_looked_at_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data fault 16: each of many tiny lz4 frames copied all of the record that had come."""
    batch, looks = batch_of([bytes(100 * KiB)] * 2, Codec.NONE), list[int]()
    head = _Reader._head

    def counted(self: _Reader, data: bytes, at: int) -> tuple[int, int]:
        looks.append(len(data))
        return head(self, data, at)

    monkeypatch.setattr(_Reader, "_head", counted)
    reader, payload = _Reader(batch, 0, KiB * KiB), batch.data[61:]
    found = [each for at in range(len(payload)) for each in reader.read(payload[at : at + 1])]
    assert reader.is_done
    assert [len(each.value or b"") for each in found if each] == [100 * KiB] * 2
    assert sum(looks) < 3 * len(payload)


def test_a_damaged_batch_and_one_that_inflates_too_far_are_errors() -> None:
    """Data fault 16: nothing is left out silently."""
    batch = batch_of([bytes(2 * KiB * KiB)] * 3)
    with pytest.raises(InflatesTooFar):
        read(batch, 3)
    with pytest.raises(Malformed, match="wrong CRC"):
        read(batch._replace(crc=batch.crc ^ 1))
