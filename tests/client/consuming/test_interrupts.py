"""Ctrl-C anywhere in poll, or in a loop over a consumer: every record is given once, in order."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from types import FunctionType

import pytest

import smq
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Chunk, Record, cut
from smq.client.consuming.consumer import Consumer
from smq.client.consuming.lending import Lending, Walk
from smq.client.consuming.positions import Positions
from smq.client.consuming.source.lane import Lane
from smq.client.consuming.source.local_source import LocalSource
from smq.client.consuming.source.reading import Reading
from smq.client.consuming.source.wire_source import WireSource
from tests.client.both import client, running, topic
from tests.client.interrupts import code_of, is_interrupted

CODES = {
    each.__code__
    for of in (
        Batch,
        Chunk,
        Consumer,
        Lane,
        Lending,
        LocalSource,
        Positions,
        Reading,
        Walk,
        WireSource,
    )
    for each in vars(of).values()
    if isinstance(each, FunctionType)
} | code_of(cut)
# Of batches that poll has returned.
CODES -= code_of(Batch.__len__, Batch.__iter__, Batch._lent, Chunk.__len__, Chunk.records)
PARTITIONS = 3

__all__ = ["client", "running", "topic"]


def polled(consumer: smq.Consumer, _left: int, given: list[Record]) -> None:
    given += consumer.poll(10)


def looped(consumer: smq.Consumer, left: int, given: list[Record]) -> None:
    given += islice(consumer, left)


@pytest.mark.slow
@pytest.mark.parametrize("read", [polled, looped])
def test_records_of_an_interrupted_poll_come_once_and_in_order(
    client: smq.Client, topic: str, read: Callable[[smq.Consumer, int, list[Record]], None]
) -> None:
    seen: list[tuple[int, int]] = []
    is_there, sent = True, 0
    with client.producer() as producer, client.consumer(topic, start="earliest") as consumer:
        while is_there:
            for partition in range(PARTITIONS):
                producer.send(topic, b"", partition=partition)
            producer.flush()
            sent += 1
            is_there = False
            while len(seen) < PARTITIONS * sent:
                given: list[Record] = []
                work = partial(read, consumer, PARTITIONS * sent - len(seen), given)
                is_there |= is_interrupted(work, CODES, sys.maxsize if is_there else sent - 1)
                seen += [(each.partition, each.offset) for each in given]
            for partition in range(PARTITIONS):
                offsets = [offset for each, offset in seen if each == partition]
                assert offsets == [*range(sent)]
                assert consumer.position(topic, partition) == sent
    assert sent > 20


def test_records_taken_by_an_interrupted_poll_come_with_the_next(
    client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Reading.take

    def interrupted(reading: Reading, *, may_ask: bool = True) -> None:
        if take(reading, may_ask=may_ask) is not None:
            raise KeyboardInterrupt

    with client.producer() as producer, client.consumer(topic, start="earliest") as consumer:
        producer.send(topic, b"", partition=0).result()
        with monkeypatch.context() as broken:
            broken.setattr(Reading, "take", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(10)
        assert consumer.position(topic, 0) == 0
        assert [each.offset for each in consumer.poll(10)] == [0]
        assert consumer.position(topic, 0) == 1
