"""A few batches are lent and cut as the way of all does it; anything else is left to that."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.log.append import append_batch
from shm.kernels.reader.cut import cut_batches
from shm.kernels.reader.lend import CURSOR_ENTRY, F_FIELDS, W_AFTER, W_NEXT, lend_batches
from shm.kernels.reader.lend_few import (
    BATCHES_FEW,
    HEADERS_FEW,
    NOT_FEW,
    RECORDS_FEW,
    lend_few,
    new_few,
)
from shm.kernels.record.records import C_FIELDS
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.shm.kernels.reader.test_lend import NUMBERS, Reader, Writer

ANY_BYTES = 1 << 20
Found = list[list[Any]]


def few(reader: Reader, bytes_max: int = ANY_BYTES) -> tuple[int, Found]:
    """How many batches there are, and their facts, the columns of the records, the counts."""
    facts, columns, counts, told = new_few()
    memory, state = reader.log.memory, (reader.wanted, reader.cursor)
    count = lend_few(memory.memory, memory.ring, *state, facts, columns, counts, told, bytes_max)
    found = max(0, count)
    records = int(counts[found]) if found else 0
    return count, [
        facts[:, :found].tolist(),
        columns[:, :records].tolist(),
        counts[:found].tolist(),
    ]


def some(reader: Reader) -> tuple[int, Found]:
    """The same, the way of all."""
    memory = reader.log.memory
    facts, columns = np.zeros((F_FIELDS, 64), np.int64), np.zeros((C_FIELDS, 256), np.int64)
    count = lend_batches(memory.memory, reader.wanted, reader.cursor, facts, ANY_BYTES)
    counts = np.zeros(count + 1, np.int64)
    assert cut_batches(memory.ring, facts, 0, count, columns, counts) == count
    return count, [
        facts[:, :count].tolist(),
        columns[:, : counts[count]].tolist(),
        counts[:count].tolist(),
    ]


rounds = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=5), min_size=1, max_size=6
)


@settings(deadline=None)
@given(rounds=rounds, start=st.integers(0, 3))
def test_a_few_batches_are_what_the_way_of_all_gives(
    rounds: list[list[tuple[int, int]]], start: int
) -> None:
    writer = Writer()
    quick, slow = Reader(writer, NUMBERS[:2]), Reader(writer, NUMBERS[:2])
    for reader in (quick, slow):
        reader.place()
        reader.wanted[W_NEXT] = start
    for appended in rounds:
        for slot, records in appended:
            writer.append(slot, records)
        writer.show(0, 1, 2)
        taken, expected = few(quick), some(slow)
        if taken[0] == NOT_FEW:
            records_max = (
                sum(expected[1][2]) + 2 * start
            )  # Of both partitions some are passed over.
            assert expected[0] >= BATCHES_FEW or records_max > RECORDS_FEW
            taken = some(quick)
        assert taken == expected
        for reader in (quick, slow):
            reader.wanted[W_NEXT] = reader.wanted[W_AFTER]
        assert (quick.wanted == slow.wanted).all()
        assert (quick.cursor == slow.cursor).all()


def compressed(writer: Writer) -> None:
    data = np.frombuffer(write_batch([Record(0, 1, None, b"v")], compression=Codec.GZIP), np.uint8)
    append_batch(writer.memory.memory, writer.links, 0, data, 0, len(data), 0, 0)


def garbage(writer: Writer) -> None:
    data = np.frombuffer(bytearray(write_batch([Record(0, 1, None, b"v")])), np.uint8)
    data[-1] = 200  # More headers than there are bytes.
    append_batch(writer.memory.memory, writer.links, 0, data, 0, len(data), 0, 0)


def headers(writer: Writer) -> None:
    record = Record(0, 1, None, b"v", ((b"", None),) * (HEADERS_FEW + 1))
    data = np.frombuffer(write_batch([record]), np.uint8)
    append_batch(writer.memory.memory, writer.links, 0, data, 0, len(data), 0, 0)


def many(writer: Writer) -> None:
    for _ in range(BATCHES_FEW):
        writer.append(0)


def a_lap(writer: Writer) -> None:
    for _ in range(40):
        writer.append(0, value=b"x" * 500)


@pytest.mark.parametrize(
    "append",
    [compressed, garbage, headers, many, a_lap, lambda writer: writer.append(0, RECORDS_FEW + 1)],
)
def test_batches_that_are_not_few_and_small_are_left_unread(
    append: Callable[[Writer], None],
) -> None:
    writer = Writer()
    reader = Reader(writer, NUMBERS[:1])
    reader.place()
    append(writer)
    writer.show(0)
    entry = reader.cursor[CURSOR_ENTRY]
    assert few(reader)[0] == NOT_FEW
    assert reader.cursor[CURSOR_ENTRY] == entry


def test_lend_few_takes_no_more_than_its_bounds() -> None:
    writer = Writer()
    reader = Reader(writer, NUMBERS[:1])
    reader.place()
    assert few(reader)[0] == 0
    writer.append(0)
    writer.append(0)
    writer.show(0)
    assert few(reader, bytes_max=1)[0] == 1
