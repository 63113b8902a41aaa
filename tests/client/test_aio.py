"""The SDK inside asyncio: the loop runs on while something waits."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import smq
from smq.client.aio import AsyncProducer
from smq.model.references import Reference
from tests.client.fake_kafka import FakeKafka

WAIT_S = 10


def run(kafka: FakeKafka, work: Callable[[smq.AsyncClient], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with smq.connect_async(kafka.bootstrap, timeout_s=5) as client:
            await asyncio.wait_for(work(client), WAIT_S)

    asyncio.run(connected())


def test_records_are_sent_and_awaited(kafka: FakeKafka) -> None:
    async def work(client: smq.AsyncClient) -> None:
        assert client.transport == "kafka"
        assert await client.create_topic("t", 2) == 2
        assert await client.topics() == {"t": 2}
        async with client.producer(linger_ms=1) as producer:
            sent = [await producer.send("t", b"%d" % i, partition=0) for i in range(100)]
            places = await asyncio.gather(*sent)
            assert [place.offset for place in places] == [*range(100)]
            batch = await producer.send_batch("t", {"value": [b"a", b"b"], "partition": [1, 1]})
            assert (await batch).offsets.tolist() == [0, 1]
            await producer.send_arrow("t", pa.table({"a": [1]}), partition=1)
            await producer.send_array("t", np.arange(3), partition=1)
            await producer.flush()
        await client.delete_topic("t")

    run(kafka, work)


def test_an_error_is_raised_where_it_is_awaited(kafka: FakeKafka) -> None:
    async def work(client: smq.AsyncClient) -> None:
        producer = await client.producer()
        with pytest.raises(smq.NoSuchTopic):
            await producer.send("nope", b"")
        await producer.close()
        with pytest.raises(smq.Closed):
            await producer.send("nope", b"")

    run(kafka, work)


def test_an_invalid_topic_name_is_refused_at_the_call(kafka: FakeKafka) -> None:
    async def work(client: smq.AsyncClient) -> None:
        async with client.producer() as producer:
            handle = Reference.of(1, bytes(10), 1, 1, "x/y")
            calls: list[Callable[[Any], Awaitable[Any]]] = [
                client.create_topic,
                client.delete_topic,
                lambda topic: client.upload(topic, b""),
                lambda topic: client.consumer(topic)._open(),
                lambda topic: client.consumer([topic])._open(),
                lambda topic: producer.send(topic, b""),
                lambda topic: producer.send_batch(topic, {"value": []}),
                lambda topic: producer.send_arrow(topic, pa.table({})),
                lambda topic: producer.send_array(topic, np.zeros(1)),
                lambda topic: producer.send_reference(topic, b""),
                lambda topic: producer.send_handle(topic, handle),
            ]
            for call in calls:
                for wrong in ("", "..", "a b", "a" * 250):
                    with pytest.raises(ValueError, match=r"is .*; it should be 1 to 249 ASCII"):
                        await call(wrong)
                with pytest.raises(TypeError, match="is text, not list"):
                    await call([["t"]])

    run(kafka, work)


def test_the_loop_runs_on_while_the_buffer_is_full(kafka: FakeKafka) -> None:
    kafka.add_topic("t")

    full = asyncio.Event()

    async def fill(producer: AsyncProducer) -> None:
        for _ in range(40):
            if producer._producer.must_wait("t", bytes(60_000), None):
                full.set()
            await producer.send("t", bytes(60_000))

    async def work(client: smq.AsyncClient) -> None:
        async with client.producer(batch_bytes=64 * 1024, buffer_bytes=256 * 1024) as producer:
            await (await producer.send("t", b"first"))  # The topic is known by now.
            kafka.takes_records.clear()
            filling = asyncio.ensure_future(fill(producer))
            await full.wait()
            assert not filling.done()
            kafka.takes_records.set()
            await filling
            await producer.flush()

    threading.Timer(WAIT_S, kafka.takes_records.set).start()
    run(kafka, work)
    assert kafka.topics["t"][0].end == 41


def test_a_producer_can_be_asked_to_wait_until_a_send_would_not(kafka: FakeKafka) -> None:
    kafka.add_topic("t")

    async def work(client: smq.AsyncClient) -> None:
        async with client.producer(
            batch_bytes=64 * 1024, buffer_bytes=128 * 1024, block_s=WAIT_S
        ) as opened:
            producer = opened._producer
            room = "t", bytes(60_000), None
            assert producer.must_wait(*room)  # The topic is not known.
            await asyncio.to_thread(producer.wait_for_room, *room)
            assert not producer.must_wait(*room)
            kafka.takes_records.clear()
            while not producer.must_wait(*room):
                producer.send("t", bytes(60_000))
            waiting = asyncio.create_task(asyncio.to_thread(producer.wait_for_room, *room))
            await asyncio.sleep(0)
            assert not waiting.done()
            kafka.takes_records.set()
            await waiting
            with pytest.raises(smq.NoSuchTopic):
                await asyncio.to_thread(producer.wait_for_room, "nowhere", b"", None)

    run(kafka, work)


def test_the_loop_runs_on_while_a_record_larger_than_a_batch_waits_for_room(
    kafka: FakeKafka,
) -> None:
    kafka.add_topic("t")
    large = bytes(90_000)

    async def work(client: smq.AsyncClient) -> None:
        async with client.producer(
            batch_bytes=1024, buffer_bytes=150_000, block_s=WAIT_S
        ) as producer:
            await (await producer.send("t", b"first"))  # The topic is known by now.
            kafka.takes_records.clear()
            await producer.send("t", large)
            assert not producer._producer.must_wait("t", b"small", None)
            sending = asyncio.ensure_future(producer.send("t", large))
            asyncio.get_running_loop().call_soon(kafka.takes_records.set)
            await sending

    run(kafka, work)
    assert kafka.topics["t"][0].end == 3
