"""A batch is lent: for its block, and as long as nothing has overtaken it."""

import asyncio

import pytest

from smq.client.consuming.batch import Batch
from smq.client.consuming.chunk import cut
from smq.client.errors import BatchReleased, Overrun
from smq.wire.records import Record, write_batch
from tests.client.batches import batches_of, expected, plain_of

DATA = write_batch([Record(each, each, None, b"value %d" % each) for each in range(3)])


class Ring:
    """Says whether it has overtaken, and hears what is given back."""

    def __init__(self) -> None:
        self.is_intact = True
        self.returned: list[bool] = []

    def lend(self) -> Batch:
        chunks, _ = cut(batches_of(DATA, is_lent=True))
        return Batch(chunks, lambda: self.is_intact, self.returned.append)


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


def test_a_copy_is_nobodys(ring: Ring) -> None:
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


def test_values_that_are_no_tables_are_told(ring: Ring) -> None:
    with ring.lend() as batch:
        with pytest.raises(ValueError, match="Arrow"):
            list(batch.tables())
        with pytest.raises(ValueError, match="magic"):
            list(batch.arrays())
