"""Readers of partitions: each record once and in order, wherever they are sent."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from smq.agent.layouts import RingLayout
from smq.agent.proto.mq_broker_pb2 import DataMessage, FetchMessageResponse
from smq.agent.topic_names import TopicName
from smq.app.agent import readers as readers_room
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES
from smq.app.agent.broker import BrokerSide
from smq.app.agent.consumed import PIECE_BYTES, copied
from smq.app.agent.large_batches import LargeBatches
from smq.app.agent.readers import HEADERS_AT_ONCE, IDLE_MAX, PartitionReaders, Reader
from smq.app.agent.topics import KnownTopic
from smq.client.consuming.batch.chunk import Record
from smq.testing.smq_broker import SmqBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(params=[0, COPIED_AT_ONCE_BYTES], ids=["apart", "at once"])
def copied_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is copied in threads, or nothing so small."""
    monkeypatch.setattr(readers_room, "COPIED_AT_ONCE_BYTES", request.param)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path) as broker:
        yield broker


def filled(broker: SmqBroker, count: int) -> KnownTopic:
    with broker.connect() as client, client.producer() as producer:
        client.create_topic("t", 1)
        for number in range(count):
            producer.send("t", b"%d" % number)
        producer.flush()
        topic_id = client.topic_ids()["t"]
    return KnownTopic(TopicName("kafka", "t"), topic_id, {}, (RingLayout(1, 1),))


def readers_of(side: BrokerSide) -> PartitionReaders:
    return PartitionReaders(side, LargeBatches(side, lambda _: 0, print, lambda: None))


async def some(reader: Reader, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count and await reader.wait(5):
        while len(found) < count and reader.peek() is not None:
            found.append((await reader.take()).offset)
    return found


@pytest.mark.usefixtures("copied_at_once")
def test_a_reader_goes_on_and_goes_elsewhere(broker: SmqBroker) -> None:
    topic = filled(broker, 100)

    async def talk() -> None:
        side = BrokerSide(broker.data_dir)
        readers = readers_of(side)
        reader = await readers.at(topic, 0, 0)
        assert await some(reader, 10) == [*range(10)]
        assert reader.position == 10
        for offset in (10, 50, 20, 20, 99):
            await reader.seek(offset)
            assert await some(reader, 1) == [offset]
            assert reader.position == offset + 1
        assert not await reader.wait(0)
        assert reader.position == 100
        readers.give_back(topic, 0, reader)
        assert await readers.at(topic, 0, 100) is reader
        await reader.close()
        side.close()

    asyncio.run(talk())


@pytest.mark.usefixtures("copied_at_once")
def test_a_reader_writes_messages_of_what_it_has_read(broker: SmqBroker) -> None:
    topic = filled(broker, 100)

    async def talk() -> None:
        side = BrokerSide(broker.data_dir)
        reader = await readers_of(side).at(topic, 0, 10)
        found = FetchMessageResponse()
        for count_max, bytes_max in ((5, 10_000), (1000, 60), (1000, 10_000)):
            while reader.peek() is None:
                assert await reader.wait(5)
            data, count = await reader.take_messages(count_max, bytes_max)
            assert 0 < count <= count_max
            assert len(data) <= bytes_max
            found.MergeFromString(data)
            assert reader.position == 10 + len(found.messages)
        values = [each.value for each in found.messages]
        assert values == [b"%d" % number for number in range(10, 10 + len(values))]
        await reader.seek(50)
        while reader.peek() is None:
            assert await reader.wait(5)
        assert await reader.take_messages(10, 3) == (b"", 0)
        assert (await reader.take()).offset == 50
        await reader.close()
        side.close()

    asyncio.run(talk())


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5])
def test_a_copy_in_pieces_is_the_whole(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert copied(memoryview(data)) == data


def test_headers_are_written_where_they_are_and_only_for_who_has_them(broker: SmqBroker) -> None:
    headers = [("grün", b"x"), ("", None)] * HEADERS_AT_ONCE  # So many that it is done apart.
    with broker.connect() as client, client.producer() as producer:
        client.create_topic("t", 1)
        for found in (headers, headers[:2], [], headers):
            producer.send("t", b"v", headers=found).result(60)
        topic_id = client.topic_ids()["t"]
    topic = KnownTopic(TopicName("kafka", "t"), topic_id, {}, (RingLayout(1, 1),))

    async def talk() -> list[list[tuple[str, bytes | None]]]:
        side, found = BrokerSide(broker.data_dir), list[list[tuple[str, bytes | None]]]()
        reader = await readers_of(side).at(topic, 0, 0)
        while len(found) < 4:
            await reader.wait(5)
            while (shown := reader.peek()) is not None:
                take_all = len(found) < 3
                record = await (reader.take() if take_all else reader.take_plain())
                found.append(
                    [
                        (each.key, each.value if each.HasField("value") else None)
                        for each in DataMessage.FromString(record.headers).headers
                    ]
                )
                assert isinstance(shown, Record)
                assert "headers" not in shown.chunk.__dict__  # They have sixteen times its memory.
        await reader.close()
        side.close()
        return found

    assert asyncio.run(talk()) == [headers, headers[:2], [], []]


def test_a_reader_that_is_given_back_last_replaces_the_oldest(broker: SmqBroker) -> None:
    topic = filled(broker, 1)

    class Closable:
        closed = 0

        def rest(self) -> None:
            pass

        async def close(self) -> None:
            Closable.closed += 1

    async def talk() -> None:
        readers = readers_of(BrokerSide(broker.data_dir))
        for number in range(IDLE_MAX + 3):
            other = topic._replace(id=UUID(int=number))
            readers.give_back(other, 0, Closable())  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            while Closable.closed < 3:  # noqa: ASYNC110  (nobody waits for it)
                await asyncio.sleep(0)
        assert Closable.closed == 3

    asyncio.run(talk())
