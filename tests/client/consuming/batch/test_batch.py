"""A batch is lent: for its block, and as long as nothing has overtaken it."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import PollRoom, cut
from smq.client.errors import BatchReleased, Overrun
from smq.client.payload_formats import ARROW_STREAM, NPY, write_array, write_table
from smq.wire.records import Record, write_batch
from tests.client.batches import batches_of, expected, plain_of

DATA = write_batch([Record(each, each, None, b"value %d" % each) for each in range(3)])


def batch_of(records: list[Record]) -> Batch:
    return Batch(cut(batches_of(write_batch(records)), PollRoom(64 << 20))[0])


class Ring:
    """Says whether it has overtaken, and hears what is given back."""

    def __init__(self) -> None:
        self.is_intact = True
        self.returned: list[bool] = []

    def lend(self) -> Batch:
        chunks, _ = cut(batches_of(DATA, is_lent=True), PollRoom(64 << 20))
        return Batch(chunks, [lambda: self.is_intact], self.returned.append)


@pytest.fixture
def ring() -> Ring:
    return Ring()


def test_a_batch_is_given_back_once(ring: Ring) -> None:
    with ring.lend() as batch:
        assert [plain_of(each) for each in batch] == expected(DATA)
        assert len(batch) == 3
        assert repr(batch) == "<batch of 3 records>"
    batch.release()
    assert ring.returned == [True]
    assert repr(batch) == "<batch of 3 records, given back>"
    with pytest.raises(BatchReleased):
        iter(batch)


def test_an_overtaken_batch_raises_when_it_is_given_back(ring: Ring) -> None:
    batch = ring.lend()
    ring.is_intact = False
    with pytest.raises(Overrun, match="overtaken 3 records"):
        batch.copy()
    with pytest.raises(Overrun):
        batch.release()
    assert ring.returned == [False]
    batch.release()


def test_a_copy_is_readable_after_the_ring_overtook_the_batch(ring: Ring) -> None:
    with ring.lend() as batch:
        copy = batch.copy()
    ring.is_intact = False
    with copy:
        assert [plain_of(each) for each in copy] == expected(DATA)


def test_a_block_may_be_asynchronous(ring: Ring) -> None:
    async def use() -> int:
        async with ring.lend() as batch:
            return len(batch)

    assert asyncio.run(use()) == 3
    assert ring.returned == [True]


def test_arrays_and_tables_are_taken_by_their_content_type_and_the_rest_is_skipped() -> None:
    array, table = np.arange(6).reshape(2, 3), pa.table({"x": [1, 2]})
    npy, stream = bytes(write_array(array)), write_table(table).to_pybytes()
    others = ((b"a", b"1"), (b"content-type", NPY), (b"content-type", ARROW_STREAM))
    sent = [
        Record(0, 0, None, b"text", ()),
        Record(1, 0, None, npy, ((b"content-type", NPY),)),
        Record(2, 0, None, stream, ((b"content-type", ARROW_STREAM),)),
        Record(3, 0, None, None, ((b"content-type", NPY),)),
        Record(4, 0, None, npy, others),
        Record(5, 0, None, npy, ()),
        Record(6, 0, None, stream, ((b"content-type", None),)),
        Record(7, 0, None, npy, ((b"content-type", b"text/plain"),)),
    ]
    with batch_of(sent) as batch:
        arrays = list(batch.arrays())
        assert [each.tolist() for each in arrays] == [array.tolist()] * 2
        assert [each.to_pylist() for each in batch.tables()] == [table.to_pylist()]
        del arrays


def test_a_value_that_is_not_what_it_says_is_named_and_the_next_ones_come() -> None:
    array, table = np.arange(3), pa.table({"x": [1]})
    npy, stream = bytes(write_array(array)), write_table(table).to_pybytes()
    types = [NPY, ARROW_STREAM, NPY, ARROW_STREAM]
    values = [b"no array", b"no table", npy, stream]
    sent = [
        Record(5 + i, 0, None, value, ((b"content-type", kind),))
        for i, (kind, value) in enumerate(zip(types, values, strict=True))
    ]
    with batch_of(sent) as batch:
        arrays, tables = batch.arrays(), batch.tables()
        with pytest.raises(ValueError, match=r"offset 5 of topic t, partition 3: .*magic"):
            next(arrays)
        with pytest.raises(ValueError, match=r"offset 6 of topic t, partition 3: .*Arrow stream"):
            next(tables)
        assert [each.tolist() for each in arrays] == [[0, 1, 2]]
        assert [each.to_pylist() for each in tables] == [[{"x": 1}]]
