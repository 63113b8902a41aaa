"""Records where they lie: views at the ring's addresses, and what happens when the ring goes on."""

import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

import smq
from smq.client.consuming.consumer import Consumer
from smq.testing.smq_broker import SmqBroker

VALUE_BYTES = 10_000
MiB = 1024 * 1024


@pytest.fixture(scope="module")
def small() -> Iterator[SmqBroker]:
    """Rings of 4 MiB: four hundred records go round one."""
    settings = {"ring.bytes": "4MiB", "wal.segment.bytes": "1MiB", "message.max.bytes": "500000"}
    with smq.testing.broker(**settings) as started:
        yield started


@pytest.fixture
def client(small: SmqBroker) -> Iterator[smq.Client]:
    with smq.connect(small.bootstrap, transport="shared memory") as connected:
        yield connected


def fill(client: smq.Client, topic: str, first: int, count: int, size: int = VALUE_BYTES) -> None:
    with client.producer(batch_bytes=100_000) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d " % number + bytes(size), partition=0)


def offsets(batch: smq.Batch) -> list[int]:
    found = [record.offset for record in batch]
    values = [int(bytes(record.value or b"").split(b" ")[0]) for record in batch]
    assert values == found
    return found


def read_to(consumer: smq.Consumer, first: int, end: int) -> None:
    """All records of [first, end), in order, nothing else."""
    at = first
    while at < end:
        with consumer.poll(5) as batch:
            found = offsets(batch)
            assert found == list(range(at, at + len(found)))
            at += len(found)
            assert found, f"something came behind {at}"
    assert at == end


def ring_of(consumer: Consumer) -> np.ndarray:
    """The ring that a consumer reads."""
    source = consumer._reading._local
    assert source is not None
    (lane,) = source._lanes.values()
    return lane._ring


def test_values_are_views_over_the_ring_itself(client: smq.Client) -> None:
    client.create_topic("views", 1)
    fill(client, "views", 0, 3)
    with client.consumer("views", start="earliest") as consumer, consumer.poll(5) as batch:
        ring = ring_of(consumer)
        start, end = ring.ctypes.data, ring.ctypes.data + len(ring)
        (chunk,) = batch.to_arrow().column("value").chunks
        assert chunk.buffers()[2].address == start
        for record in batch:
            at = np.frombuffer(record.value or b"", np.uint8).ctypes.data
            assert start <= at < end
        assert consumer.statistics().records_from_rings == 3
        kept = batch.copy()
        (chunk,) = kept.to_arrow().column("value").chunks
        assert not start <= chunk.buffers()[2].address < end
        assert offsets(kept) == [0, 1, 2]


def test_a_slow_consumer_goes_on_over_the_wire_and_returns_to_the_ring(client: smq.Client) -> None:
    client.create_topic("slow", 1)
    fill(client, "slow", 0, 10)
    with client.consumer("slow", start="earliest") as consumer:
        read_to(consumer, 0, 10)
        fill(client, "slow", 10, 800)  # Twice around.
        read_to(consumer, 10, 810)
        counted = consumer.statistics()
        assert counted.ring_to_wire >= 1
        assert counted.records == 810
        assert counted.records_from_rings < 810
        fill(client, "slow", 810, 10)
        read_to(consumer, 810, 820)
        assert consumer.statistics().wire_to_ring >= 1
        assert consumer.transport == "shared memory"


def test_a_batch_that_is_overtaken_in_its_block_is_read_again(client: smq.Client) -> None:
    client.create_topic("overrun", 1)
    fill(client, "overrun", 0, 10)
    with client.consumer("overrun", start="earliest") as consumer:
        batch = consumer.poll(5)
        assert offsets(batch)[0] == 0
        kept = batch.copy()
        fill(client, "overrun", 10, 800)
        with pytest.raises(smq.Overrun):
            batch.copy()
        with pytest.raises(smq.Overrun):
            batch.__exit__(None)
        assert offsets(kept)[0] == 0
        assert consumer.position("overrun", 0) == 0
        read_to(consumer, 0, 810)
        assert consumer.statistics().overruns == 1


def test_an_exception_in_a_batchs_block_hides_the_overrun(client: smq.Client) -> None:
    client.create_topic("error", 1)
    fill(client, "error", 0, 1)
    with client.consumer("error", start="earliest") as consumer:
        with suppress(ZeroDivisionError), consumer.poll(5):
            fill(client, "error", 1, 800)
            raise ZeroDivisionError
        assert consumer.position("error", 0) == 0


def test_the_poll_after_an_overtaken_batch_says_so(client: smq.Client) -> None:
    client.create_topic("lost", 1)
    fill(client, "lost", 0, 1)
    with client.consumer("lost", start="earliest") as consumer:
        consumer.poll(5)
        fill(client, "lost", 1, 800)
        with pytest.raises(smq.Overrun):
            consumer.poll(5)
        read_to(consumer, 0, 801)


def test_records_that_left_the_ring_are_sought_over_the_wire(client: smq.Client) -> None:
    client.create_topic("old", 1)
    fill(client, "old", 0, 800)
    with client.consumer("old", start="latest") as consumer:
        assert consumer.transport == "shared memory"
        consumer.seek("old", 0, 3)
        assert consumer.transport == "kafka"
        read_to(consumer, 3, 800)
        fill(client, "old", 800, 1)
        read_to(consumer, 800, 801)
        consumer.seek("old", 0, 799)
        assert consumer.transport == "shared memory"
        read_to(consumer, 799, 801)


def test_a_consumer_of_a_deleted_topic_raises_no_such_topic(client: smq.Client) -> None:
    client.create_topic("deleted", 1)
    with client.consumer("deleted") as consumer:
        assert not consumer.poll(0.05)
        client.delete_topic("deleted")
        with pytest.raises(smq.NoSuchTopic):
            next(iter(consumer))


@pytest.mark.slow
def test_no_garbage_is_handed_out_by_a_ring_that_races(client: smq.Client) -> None:
    """A writer goes round the ring as fast as it can; a reader now and then dawdles."""
    client.create_topic("race", 1)
    total, chance = 20_000, random.Random(7)

    def write() -> None:
        with client.producer(batch_bytes=100_000) as producer:
            for number in range(total):
                producer.send("race", (b"%d " % number) * 300, partition=0)

    writing = threading.Thread(target=write)
    at = overruns = 0
    with client.consumer("race", start="earliest") as consumer:
        writing.start()
        while at < total:
            batch = consumer.poll(5)
            found = [bytes(record.value or b"") for record in batch]
            if chance.random() < 0.1:
                writing.join(chance.random() / 4)  # Dawdle while it writes.
            try:
                batch.release()
            except smq.Overrun:
                overruns += 1
                continue
            assert found == [(b"%d " % number) * 300 for number in range(at, at + len(found))]
            at += len(found)
        writing.join()
        counted = consumer.statistics()
    assert counted.overruns == overruns
    assert counted.records_from_rings > 0
