"""The consumer on an event loop: the same records, and the loop goes on meanwhile."""

import asyncio
import time

import pytest

import smq
from smq.testing.smq_broker import SmqBroker
from tests.client.both import TRANSPORTS, running

__all__ = ["running"]  # A fixture.


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def connect(running: SmqBroker, transport: str) -> smq.AsyncClient:
    return smq.connect_async(running.bootstrap, transport=transport)


def name_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).translate(str.maketrans("[] ", "---")).strip("-")


def test_records_come_in_order_and_are_committed(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> list[bytes]:
        found: list[bytes] = []
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.producer() as producer:
                for number in range(20):
                    await producer.send(topic, b"%d" % number)
                await producer.flush()
            async with client.consumer(topic, group=topic, start="earliest") as consumer:
                while len(found) < 20:
                    async with await consumer.poll(5) as batch:
                        found += [bytes(record.value or b"") for record in batch]
                await consumer.commit()
                assert await consumer.committed() == {(topic, 0): 20}
                assert await consumer.lag() == {(topic, 0): 0}
                assert consumer.assignment() == [(topic, 0)]
                assert consumer.transport == transport
                assert consumer.statistics().records == 20
                await consumer.seek(topic, 0, 18)
                assert consumer.position(topic, 0) == 18
                async for record in consumer:
                    assert record.offset == 18
                    break
        return found

    assert asyncio.run(talk(name_of(request))) == [b"%d" % each for each in range(20)]


def test_the_loop_goes_on_while_a_consumer_waits_and_wakes_it(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        async with connect(running, transport) as client:
            await client.create_topic(topic, 2)
            ticking = asyncio.create_task(tick())
            async with client.producer() as producer, client.consumer(topic) as consumer:
                assert not await consumer.poll(0.1)
                for number in range(3):
                    waiting = asyncio.create_task(consumer.poll(5))
                    await asyncio.sleep(0.03)
                    started = time.monotonic()
                    await producer.send(topic, b"%d" % number)
                    async with await waiting as batch:
                        assert [bytes(each.value or b"") for each in batch] == [b"%d" % number]
                    assert time.monotonic() - started < 0.4
                await consumer.pause(topic, 0)
                await consumer.resume(topic, 0)
                assert await consumer.offsets_for_times({(topic, 0): 2**50}) == {(topic, 0): None}
            ticking.cancel()
        return ticks

    assert asyncio.run(talk(name_of(request))) > 10


def test_following_begins_at_the_end(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> list[bytes]:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.producer() as producer, client.consumer() as consumer:
                await (await producer.send(topic, b"old"))
                await consumer.assign([(topic, 0)])
                following = consumer.follow(timeout_s=0.5)

                async def send() -> None:
                    await asyncio.sleep(0.1)
                    await producer.send(topic, b"new")

                sending = asyncio.create_task(send())
                found = [bytes(record.value or b"") async for record in following]
                await sending
                return found

    assert asyncio.run(talk(name_of(request))) == [b"new"]
