"""The edges of the kernels behind smq.client.consuming.batch.chunk, whose test compares records."""

import numpy as np

from shm.kernels.reader.cut import cut_batches, records_announced, run_of
from shm.kernels.reader.lend import F_FIELDS, F_START
from shm.kernels.record.records import (
    B_ATTRIBUTES,
    B_COUNT,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_OFFSET,
    new_columns,
)
from smq.wire.records import Record, write_batch
from tests.client.batches import batches_of


def test_a_run_is_compressed_or_not() -> None:
    facts = np.zeros((F_FIELDS, 5), np.int64)
    facts[B_ATTRIBUTES] = [8, 16, 1, 4 | 8, 0]
    facts[B_COUNT], facts[B_RECORDS_END] = [1, 2, 3, 4, 5], 100
    assert [run_of(facts, first) for first in (0, 1, 2, 4)] == [
        (2, False, 3),
        (2, False, 2),
        (4, True, 7),
        (5, False, 5),
    ]


def test_more_records_than_bytes_are_not_believed() -> None:
    facts = np.zeros((F_FIELDS, 3), np.int64)
    facts[B_COUNT] = [2**31 - 1, -5, 3]
    facts[B_RECORDS_AT], facts[B_RECORDS_END] = 100, 170
    assert records_announced(facts) == 13


def test_records_before_the_start_give_their_room_to_those_behind() -> None:
    sent = [write_batch([Record(i, 0, None, b"") for i in range(a, a + 4)]) for a in (0, 4)]
    batches = batches_of(b"".join(sent))
    for start in range(9):
        batches.facts[F_START] = start
        columns, counts = new_columns(8), np.zeros(3, np.int64)
        assert cut_batches(batches.memory, batches.facts, 0, 2, columns, counts) == 2
        assert counts.tolist() == [max(0, 4 - start), min(4, 8 - start), 8 - start]
        assert columns[C_OFFSET, : counts[2]].tolist() == list(range(start, 8))


def test_room_for_too_few_records_is_as_a_broken_batch() -> None:
    batches = batches_of(write_batch([Record(0, 0, None, b""), Record(1, 0, None, b"")]))
    counts = np.zeros(2, np.int64)
    assert cut_batches(batches.memory, batches.facts, 0, 1, new_columns(1), counts) == 0
