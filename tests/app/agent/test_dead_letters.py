"""Dead letters: their topics' names, and what they say of themselves."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from smq.agent.read_records import ReadRecord
from smq.app.agent.dead_letters import (
    NAME_CHARACTERS_MAX,
    ROOM_THREADS_MAX,
    DeadLetter,
    headers_of,
    topic_of,
    write,
)
from smq.client.kafka.admin import delete_topic
from smq.client.locate import cluster_at
from smq.client.names import TopicPartition
from smq.model.names import topic_name_problem
from tests.app.agent.doors import Doors
from tests.app.agent.message_streams import ack, committed, filled, init, subscribed
from tests.app.agent.streams import kafka_name, soon


def test_a_groups_dead_letters_have_a_topic_that_may_be() -> None:
    assert topic_of("shop.orders", "g") == "shop.orders.g.dlq"
    for group in ("a group/with: signs", "é", "x" * 500):
        name = topic_of("shop.orders", group)
        assert name.endswith(".dlq")
        assert len(name) <= NAME_CHARACTERS_MAX
        assert topic_name_problem(name) is None


def test_a_dead_letter_says_where_its_record_was_and_why_it_is_here() -> None:
    message = ReadRecord(offset=7)
    letter = DeadLetter(TopicPartition("t", 3), "g", message, 5, "it failed")
    assert dict(headers_of(letter)) == {
        "__dlq.errors.topic": b"t",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"g",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"it failed",
    }


class FullSide:
    """A broker's side whose producer has no room until it is freed."""

    def __init__(self) -> None:
        self.free, self.sent = threading.Event(), 0

    async def ask(self, *_: object) -> None:
        pass

    async def producer(self) -> "FullSide":
        return self

    def must_wait(self, *_: object) -> bool:
        return not self.free.is_set()

    def wait_for_room(self, *_: object) -> None:
        self.free.wait(30)

    def send(self, *_: object, **fields: object) -> "asyncio.Future[None]":
        self.free.wait(30)
        self.sent += 1
        sent = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent


def test_letters_that_wait_for_room_leave_the_threads_to_other_calls() -> None:
    letter = DeadLetter(TopicPartition("t", 3), "g", ReadRecord(offset=7), 5, "it failed")

    async def talk() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        side: Any = FullSide()
        letters = [asyncio.create_task(write(side, letter)) for _ in range(2 * ROOM_THREADS_MAX)]
        try:
            async with asyncio.timeout(20):
                for _ in range(10):
                    await asyncio.sleep(0)
                await asyncio.to_thread(len, ())
                assert side.sent == 0
        finally:
            side.free.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*letters)
        assert side.sent == len(letters)

    asyncio.run(talk())


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_topic_of_dead_letters_that_was_deleted_is_made_again(doors: Doors) -> None:
    topic, partition = filled(doors, 2)
    stream = subscribed(doors, init(topic, partition, consumer_group="again"))
    name = f"{kafka_name(topic)}.again.dlq"
    for done, record in enumerate(stream.read_many(2), 1):
        for _ in range(4):
            stream.send(ack(record, nack=True))
            stream.read()
        stream.send(ack(record, nack=True))
        soon(lambda done=done: committed(doors, "again", topic) == done)
        with cluster_at(doors.smq.data_dir) as cluster:
            delete_topic(cluster, name)
    stream.finish()
