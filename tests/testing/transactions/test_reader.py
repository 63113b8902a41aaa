"""Readers of both clients: everything that is committed, and what one meets is carried over."""

import pytest

from smq.testing.smq_broker import SmqBroker
from smq.testing.transactions.history import Attempt, Copy, Item
from smq.testing.transactions.reader import ConfluentReader, SmqReader, read_all, reading_along

ME = Attempt(1, 2, 3)


@pytest.mark.parametrize("kind", [ConfluentReader, SmqReader])
def test_all_that_is_committed_is_read_and_nothing_else(
    smq_broker: SmqBroker, kind: type[ConfluentReader | SmqReader]
) -> None:
    copies = [Copy(Item(0, number), ME, None) for number in range(20)]
    with smq_broker.connect() as client:
        client.create_topic("t", 2)
        with client.producer(transactional_id="a") as producer:
            with producer.transaction():
                for copy in copies:
                    producer.send("t", copy.packed(), partition=copy.item.number % 2)
            aborted = producer.transaction()
            aborted.__enter__()
            producer.send("t", copies[0].packed(), partition=0)
            producer.flush(30)
            aborted.__exit__(ValueError, ValueError("aborted"), None)
    reader = kind(smq_broker.bootstrap, "t")
    read_all(reader, 60_000)
    reader.close()
    assert sorted(seen.copy for seen in reader.seen) == copies
    assert {seen.partition for seen in reader.seen} == {0, 1}


def test_an_exception_of_a_parallel_reader_is_raised() -> None:
    class Failing:
        name, seen = "failing", ()

        def read(self) -> None:
            raise AssertionError("it met this")

    with pytest.raises(AssertionError, match="it met this"), reading_along([Failing()]):  # type: ignore[list-item]
        pass
