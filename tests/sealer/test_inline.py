"""Payloads as values: every record once, in its place, as much as the client asked for."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.filer.local import LocalStore
from smq.filer.store import Store
from smq.model.errors import Unavailable
from smq.model.references import Reference, directory_of
from smq.sealer.inline import RECORD_OVERHEAD_BYTES, deliver, payload_in
from smq.testing.faulty_store import Flaky
from smq.testing.memory_store import MemoryStore
from smq.testing.payloads import CONTENT_TYPE, HANDLE_HEADERS, handle_batch, reference_to, uploaded
from smq.wire.codec import Buffer
from smq.wire.markers import write_empty
from smq.wire.records import BatchView, Record, read_batches, write_batch

CONTENT = ((b"content-type", CONTENT_TYPE.encode()),)


def from_dict(payloads: dict[str, bytes]) -> Callable[[Reference], Buffer | None]:
    return lambda reference: payloads.get(reference.id)


def delivered(
    batches: bytes, offset: int, bytes_max: int, payloads: dict[str, bytes]
) -> tuple[list[BatchView], int]:
    made = deliver(batches, offset, bytes_max, from_dict(payloads))
    data = b"".join(made.pieces)
    [place] = made.places(offset)
    assert (place["at"], place["end"], place["last_offset"]) == (0, len(data), made.next_offset - 1)
    return list(read_batches(data)), made.next_offset


def test_a_payload_stands_in_its_handles_place() -> None:
    reference = reference_to(b"payload")
    batches = handle_batch([b"plain", reference], offset=7, time_ms=50)
    [batch], end = delivered(batches, 7, 1 << 20, {reference.id: b"payload"})
    first, second = batch.records()
    assert end == 9
    assert first == Record(7, 50, b"key", b"plain")
    assert second == Record(8, 50, b"key", b"payload", CONTENT)
    assert (batch.base_offset, batch.last_offset, batch.producer_id) == (7, 8, -1)


def test_its_own_headers_stay() -> None:
    reference = reference_to(b"payload")
    headers = ((b"a", b"1"), *HANDLE_HEADERS, (b"content-type", b"own"))
    batch = write_batch([Record(0, 0, None, reference.handle(), headers)])
    [made], _ = delivered(batch, 0, 1 << 20, {reference.id: b"payload"})
    [record] = made.records()
    assert record.headers == ((b"a", b"1"), (b"content-type", b"own"))


def test_a_missing_payload_stays_a_handle() -> None:
    batch = handle_batch([reference_to(b"payload")])
    [made], _ = delivered(batch, 0, 1 << 20, {})
    assert list(made.records()) == [*next(read_batches(batch)).records()]


def test_a_payload_larger_than_the_clients_limit_stays_a_handle() -> None:
    large, small = reference_to(bytes(5000)), reference_to(b"small", 1)
    payloads = {large.id: bytes(5000), small.id: b"small"}
    [made], end = delivered(handle_batch([large, small]), 0, 5000, payloads)
    assert [each.value for each in made.records()] == [large.handle(), b"small"]
    assert end == 2


def test_the_time_of_the_append_stays_the_batches() -> None:
    reference = reference_to(b"payload")
    stamped = bytearray(handle_batch([reference], time_ms=50))
    stamped[22] |= 8  # LogAppendTime …
    stamped[35:43] = (77).to_bytes(8)  # … which is the largest timestamp.
    from smq.wire import records  # noqa: PLC0415

    stamped[17:21] = records.crc_of(stamped).to_bytes(4)
    [made], _ = delivered(bytes(stamped), 0, 1 << 20, {reference.id: b"payload"})
    assert made.is_log_append_time
    assert made.max_timestamp == 77
    assert [each.timestamp_ms for each in made.records()] == [77]


def test_a_gap_at_the_end_of_a_batch_is_covered() -> None:
    reference = reference_to(b"payload")
    batch = handle_batch([reference], offset=3)
    gapped = next(read_batches(batch))._replace(last_offset_delta=4)
    from smq.wire.records import batch_pieces  # noqa: PLC0415

    data = b"".join(batch_pieces([*next(read_batches(batch)).records()], gapped, 7))
    for offset in (3, 5):
        made, end = delivered(data, offset, 1 << 20, {reference.id: b"payload"})
        assert end == 8
        assert made[-1].last_offset == 7


def test_empty_batches_in_place_of_aborted_records_are_skipped() -> None:
    """Data fault 27, its kind: aiokafka raised at a control batch without records."""
    reference = reference_to(b"payload")
    batches = (
        write_empty(0, 3, 0, 50) + handle_batch([reference], offset=3) + write_empty(4, 6, 0, 5)
    )
    made, end = delivered(batches, 0, 1 << 20, {reference.id: b"payload"})
    assert ([each.base_offset for each in made], end) == ([3], 6)
    nothing = deliver(write_empty(0, 3, 0, 50), 1, 1 << 20, from_dict({}))
    assert (nothing.pieces, nothing.next_offset) == ([], 3)


VALUES = st.one_of(
    st.binary(max_size=20), st.integers(0, 3000).map(lambda size: reference_to(bytes(size), size))
)


@settings(deadline=None)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=6), max_size=5), st.integers(1, 6000))
def test_a_client_that_reads_on_sees_every_record_once(
    batches: list[list[bytes | Reference]], bytes_max: int
) -> None:
    sent = [each for batch in batches for each in batch]
    payloads = {each.id: bytes(each.length) for each in sent if isinstance(each, Reference)}
    data, offset = b"", 0
    for batch in batches:
        data += handle_batch(batch, offset=offset)
        offset += len(batch)
    read, offset = [], 0
    while offset < len(sent):
        made, end = delivered(data, offset, bytes_max, payloads)
        records = [each for batch in made for each in batch.records() if each.offset >= offset]
        assert [each.offset for each in records] == [*range(offset, end)]
        assert end > offset
        if len(records) > 1 and any(each.headers == CONTENT for each in records):
            assert sum(len(batch.data) for batch in made) <= bytes_max
        read += records
        offset = end
    for record, value in zip(read, sent, strict=True):
        check(record, value, bytes_max)


def check(record: Record, sent: bytes | Reference, bytes_max: int) -> None:
    """A record is what was sent, with its payload if that fits what the client asks for."""
    if isinstance(sent, bytes):
        assert record.value == sent
    elif record.headers == CONTENT:
        assert record.value == bytes(sent.length)
    else:
        assert record.value == sent.handle()
        assert sent.length > bytes_max - BATCH_HEADER_BYTES - RECORD_OVERHEAD_BYTES - 200


@pytest.fixture(params=["local", "elsewhere"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


@pytest.mark.parametrize("data", [b"", b"payload"])
def test_payloads_are_read_from_the_filer(store: Store, data: bytes) -> None:
    reference = uploaded(store, "images", data)
    found = payload_in(store, directory_of("kafka", "images"))(reference)
    assert found is not None
    assert bytes(found) == data
    assert payload_in(store, directory_of("kafka", "other"))(reference) is None


def test_while_the_filer_is_away_a_payload_is_not_said_to_be_gone(store: Store) -> None:
    reference = uploaded(store, "images", b"payload")
    away = Flaky(store, Random(0), 1)
    batch = handle_batch([b"plain", reference])
    with pytest.raises(Unavailable):
        deliver(batch, 0, 1 << 20, payload_in(away, directory_of("kafka", "images")))


def test_a_file_that_cannot_be_read_is_not_said_to_be_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    reference = uploaded(store, "images", b"payload")
    payload = payload_in(store, directory_of("kafka", "images"))
    path = tmp_path / reference.key("images")
    path.unlink()
    path.symlink_to(path)  # No error of a disk, but no missing file either.
    with pytest.raises(Unavailable):
        payload(reference)
    path.unlink()
    path.mkdir()
    assert payload(reference) is None


def test_a_payload_that_was_changed_is_not_served(store: Store) -> None:
    reference = uploaded(store, "images", b"payload")
    for other in (b"payl0ad", b"short"):
        store.put(reference.key("images"), other, "overwrite")
        assert payload_in(store, directory_of("kafka", "images"))(reference) is None
