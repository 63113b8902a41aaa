"""The twin against somebody else's code: aiokafka's own record batches."""

from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings, strategies as st

from shm.kernels.twin import records as plain
from smq.testing.records import plain_records


def _ordinary(records: list[plain.PlainRecord]) -> list[plain.PlainRecord]:
    """aiokafka takes -1 for a timestamp not yet set, and gets the largest wrong."""
    return [record._replace(timestamp=record.timestamp % 2**44) for record in records]


def _by_aiokafka(records: list[plain.PlainRecord]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    for record in records:
        headers: Any = [(key.decode(), value) for key, value in record.headers]
        at = record.offset - records[0].offset
        builder.append(at, record.timestamp, record.key, record.value, headers)
    return bytes(builder.build())


@settings(deadline=None)
@given(plain_records(base_offset=0).map(_ordinary))
def test_a_batch_is_what_aiokafka_builds(records: list[plain.PlainRecord]) -> None:
    end_offset = records[-1].offset + 1
    theirs = _by_aiokafka(records)
    ours = plain.batch(records, end_offset=end_offset, leader_epoch=-1)
    # Theirs says offset 0 where the records begin, and leaves the epoch to the broker.
    assert ours[21:] == theirs[21:]
    assert ours[17:21] == theirs[17:21]


@settings(deadline=None)
@given(plain_records(base_offset=3).map(_ordinary), st.integers(0, 5))
def test_aiokafka_reads_what_was_built(records: list[plain.PlainRecord], gap: int) -> None:
    data = plain.batch(records, end_offset=records[-1].offset + 1 + gap)
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    assert batch.next_offset == records[-1].offset + 1 + gap
    read = [(each.offset, each.timestamp, each.key, each.value) for each in batch]
    assert read == [record[:4] for record in records]


def test_a_view_inlines_what_is_short() -> None:
    data = b"0123456789abcdef"
    assert plain.view(data, 1, 12) == b"\x0c\0\0\x00123456789abc"
    assert plain.view(data, 1, 13) == b"\x0d\0\0\x001234\0\0\0\0\1\0\0\0"
    assert plain.view(data, 1, -1) == bytes(16)
