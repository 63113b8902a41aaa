"""The consumer on an event loop: the same records, and the loop goes on meanwhile."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

import smq
from smq.testing.smq_broker import SmqBroker
from tests.client.both import (
    NAP_SECONDS,
    TRANSPORTS,
    WAIT_SECONDS,
    running,
    say_when_asleep,
)

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
    async def talk(topic: str) -> None:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 2)
            async with client.producer() as producer, client.consumer(topic) as consumer:
                assert not await consumer.poll(0.1)
                asleep = asyncio.Event()
                say_when_asleep(consumer._consumer, asleep.set)
                for number in range(3):
                    asleep.clear()
                    waiting = asyncio.create_task(consumer.poll(NAP_SECONDS))
                    await asleep.wait()
                    assert not waiting.done()
                    await producer.send(topic, b"%d" % number)
                    async with await asyncio.wait_for(waiting, WAIT_SECONDS) as batch:
                        assert [bytes(each.value or b"") for each in batch] == [b"%d" % number]
                await consumer.pause(topic, 0)
                await consumer.resume(topic, 0)
                assert await consumer.offsets_for_times({(topic, 0): 2**50}) == {(topic, 0): None}

    asyncio.run(asyncio.wait_for(talk(name_of(request)), 3 * WAIT_SECONDS))


def test_following_begins_at_the_end(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> None:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.producer() as producer, client.consumer() as consumer:
                await (await producer.send(topic, b"old"))
                await consumer.assign([(topic, 0)])
                asleep = asyncio.Event()
                say_when_asleep(consumer._consumer, asleep.set)
                following = consumer.follow(timeout_s=NAP_SECONDS)
                first = asyncio.ensure_future(anext(following))
                await asleep.wait()
                await producer.send(topic, b"new")
                assert bytes((await asyncio.wait_for(first, WAIT_SECONDS)).value or b"") == b"new"

    asyncio.run(asyncio.wait_for(talk(name_of(request)), 3 * WAIT_SECONDS))


def test_following_ends_when_nothing_has_come_for_a_while(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> list[int]:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.consumer() as consumer:
                await consumer.assign([(topic, 0)])
                return [record.offset async for record in consumer.follow(timeout_s=0.05)]

    assert asyncio.run(talk(name_of(request))) == []


@pytest.mark.parametrize("group", [None, "readers"])
def test_a_poll_that_is_cancelled_costs_no_record(
    running: SmqBroker, transport: str, group: str | None, request: pytest.FixtureRequest
) -> None:
    count = 400

    async def talk(topic: str) -> list[int]:
        found: list[int] = []
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            group_id = group and topic
            async with (
                client.producer() as producer,
                client.consumer(topic, group=group_id, start="earliest") as consumer,
            ):
                for number in range(count):
                    await producer.send(topic, b"%d" % number)
                    patience_s = 0.0005 * (number % 5)
                    with suppress(TimeoutError):
                        async with await asyncio.wait_for(consumer.poll(1), patience_s) as batch:
                            found += [int(bytes(record.value or b"")) for record in batch]
                while len(found) < count:
                    async with await consumer.poll(WAIT_SECONDS) as batch:
                        assert batch
                        found += [int(bytes(record.value or b"")) for record in batch]
                assert await consumer.lag() == {(topic, 0): 0}
        return found

    assert asyncio.run(talk(name_of(request))) == [*range(count)]


class HeldTake:
    """The take of a consumer, held in its thread until `go_on`. It gives what comes."""

    def __init__(self, consumer: smq.AsyncConsumer) -> None:
        self.begun, self.go_on, self.has_taken = (threading.Event() for _ in range(3))
        inner = consumer._consumer
        self._take = inner.take
        inner.take, inner.may_wait = self, lambda: True  # type: ignore[method-assign]

    def __call__(self, *, may_ask: bool = True) -> smq.Batch | None:
        self.begun.set()
        self.go_on.wait(WAIT_SECONDS)
        while (batch := self._take()) is None:
            pass
        self.has_taken.set()
        return batch


def test_a_call_after_a_cancelled_poll_waits_for_its_end(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> list[int]:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.producer() as producer:
                await (await producer.send(topic, b"x"))
            async with client.consumer(topic, start="earliest") as consumer:
                held = HeldTake(consumer)
                polling = asyncio.create_task(consumer.poll(1))
                await asyncio.to_thread(held.begun.wait, WAIT_SECONDS)
                polling.cancel()
                await asyncio.wait([polling])
                asking = asyncio.create_task(consumer.lag())
                await asyncio.sleep(0)
                held.go_on.set()
                assert await asking == {(topic, 0): 1}
                async with await consumer.poll(WAIT_SECONDS) as batch:
                    return [record.offset for record in batch]

    assert asyncio.run(talk(name_of(request))) == [0]


def test_records_taken_by_a_cancelled_poll_come_with_the_next(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> None:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.producer() as producer:
                await (await producer.send(topic, b"x"))
            async with client.consumer(topic, start="earliest") as consumer:
                held = HeldTake(consumer)
                polling = asyncio.create_task(consumer.poll(1))
                await asyncio.to_thread(held.begun.wait, WAIT_SECONDS)
                polling.cancel()
                held.go_on.set()
                assert await asyncio.to_thread(held.has_taken.wait, WAIT_SECONDS)
                assert consumer.position(topic, 0) == 0
                async with await consumer.poll(WAIT_SECONDS) as batch:
                    assert [record.offset for record in batch] == [0]
                assert consumer.position(topic, 0) == 1

    asyncio.run(talk(name_of(request)))


def test_a_poll_after_one_that_timed_out_does_not_begin_again(
    running: SmqBroker, transport: str, request: pytest.FixtureRequest
) -> None:
    async def talk(topic: str) -> None:
        async with connect(running, transport) as client:
            await client.create_topic(topic, 1)
            async with client.consumer(topic) as consumer:
                for _ in range(3):
                    consumer._consumer.give_back()
                    assert not consumer._consumer._reading.is_torn
                    assert not await consumer.poll(0)

    asyncio.run(talk(name_of(request)))


def test_how_long_to_wait_is_looked_at(running: SmqBroker, transport: str) -> None:
    async def talk() -> None:
        async with connect(running, transport) as client, client.consumer() as consumer:
            with pytest.raises(TypeError, match="timeout_s"):
                await consumer.poll("x")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="timeout_s"):
                await consumer.poll(-5)

    asyncio.run(talk())


def test_a_shard_that_is_lost_is_asked_by_a_thread_and_not_by_the_loop(
    running: SmqBroker, request: pytest.FixtureRequest
) -> None:
    """It blocked the loop, for as long as the shard did not answer."""

    async def talk(topic: str) -> list[threading.Thread]:
        async with connect(running, "shared memory") as client:
            await client.create_topic(topic, 1)
            async with (
                client.producer() as producer,
                client.consumer(topic, start="earliest") as consumer,
            ):
                await (await producer.send(topic, b"x"))
                async with await consumer.poll(WAIT_SECONDS) as batch:
                    assert len(batch) == 1
                asking: list[threading.Thread] = []
                reading = consumer._consumer._reading
                take = reading._wire.take

                def noted() -> Any:
                    asking.append(threading.current_thread())
                    return take()

                reading._wire.take = noted  # type: ignore[method-assign]
                assert reading._local is not None
                reading._local.doors.close()
                await (await producer.send(topic, b"y"))
                async with await consumer.poll(WAIT_SECONDS) as batch:
                    assert len(batch) == 1
                return asking

    asking = asyncio.run(talk(name_of(request)))
    assert asking
    assert threading.main_thread() not in asking
