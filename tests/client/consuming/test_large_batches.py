"""Batches that inflate far, on both transports: no reader is stopped for ever."""

import time
from itertools import islice

import pytest

import smq
from tests.client.both import WAIT_SECONDS, client, running, topic

__all__ = ["client", "running", "topic"]  # Fixtures.


def values(batch: smq.Batch) -> list[bytes]:
    return [bytes(record.value or b"") for record in batch]


def test_a_batch_that_inflates_too_far_raises_until_a_seek_passes_it(
    client: smq.Client, topic: str
) -> None:
    """Data fault 16: it stopped the topic's readers for ever."""
    with client.producer(compression="zstd") as producer:
        for value in (b"a", bytes(20_000), b"b"):
            producer.send(topic, value, partition=1)
            producer.flush()
        producer.send(topic, b"c", partition=2)
    with client.consumer(start="earliest", inflated_bytes_max=10_000) as consumer:
        consumer.assign([(topic, 1)])
        assert values(consumer.poll(WAIT_SECONDS)) == [b"a"]
        for _ in range(2):
            told = f"{topic}-1 has a batch at offsets 1 to 1 that inflates to more than 10000 bytes"
            with pytest.raises(smq.BatchTooLarge, match=told) as raised:
                consumer.poll(WAIT_SECONDS)
        consumer.seek(topic, 1, raised.value.end)
        assert values(consumer.poll(WAIT_SECONDS)) == [b"b"]
    with client.consumer(topic, start="earliest") as consumer:
        found = {len(record.value or b"") for record in islice(consumer, 4)}
    assert found == {1, 20_000}


def test_batches_that_fill_a_poll_come_with_the_next(client: smq.Client, topic: str) -> None:
    """Data fault 16: a poll inflates no more than twice what one batch may."""
    with client.producer(compression="zstd") as producer:
        for number in range(40):
            producer.send(topic, bytes(6_000), partition=number % 2)
            producer.flush()
    found, polls, deadline = 0, 0, time.monotonic() + 20
    with client.consumer(topic, start="earliest", inflated_bytes_max=10_000) as consumer:
        while found < 40:
            assert time.monotonic() < deadline, f"{found} of 40 records came"
            with consumer.poll(WAIT_SECONDS) as batch:
                assert len(batch) <= 4
                found, polls = found + len(batch), polls + 1
    assert polls >= 10
