"""GetUnflushedMessages of a real broker: what no sealed segment has, and then an end."""

import asyncio
from itertools import count
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, Topic
from smq.app.agent.refusals import CallRefused
from smq.app.agent.unflushed_calls import WAITS_MAX, _write, key_hash
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME
from tests.app.agent.doors import Doors, refused
from tests.app.agent.streams import soon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

names = (f"u{number}" for number in count())
WHOLE = Partition(ring_size=2520, range_start=0, range_stop=2520)


def fill(doors: Doors, name: str, numbers: range) -> None:
    with doors.smq.connect() as client, client.producer() as producer:
        for number in numbers:
            producer.send(name, b"%d" % number, key=b"k")


def unflushed(doors: Doors, name: str, start: int = 0) -> list[pb.GetUnflushedMessagesResponse]:
    topic = Topic(namespace="kafka", name=name)
    request = pb.GetUnflushedMessagesRequest(
        topic=topic, partition=WHOLE, start_buffer_offset=start
    )
    return [*doors.broker.GetUnflushedMessages(request)]


def test_records_that_are_not_sealed_are_given_and_then_the_end(doors: Doors) -> None:
    name = next(names)
    with doors.smq.connect() as client:
        client.create_topic(name, 1)
    [end] = unflushed(doors, name)
    assert end.end_of_stream
    fill(doors, name, range(5))
    *entries, end = unflushed(doors, name, 2)
    assert [(each.message.offset, each.message.data) for each in entries] == [
        (number, b"%d" % number) for number in range(2, 5)
    ]
    assert {each.message.key for each in entries} == {b"k"}
    assert entries[0].message.partition_key_hash == key_hash(b"k")
    assert end.end_of_stream


def test_sealed_records_are_left_to_their_segments(doors: Doors) -> None:
    name = next(names)
    with doors.smq.connect() as client:
        client.create_topic(name, 1, {"smq.seal.ms": "1", "smq.seal.bytes": "1"})
    fill(doors, name, range(3))

    def is_sealed() -> bool:
        with open_manifest(doors.smq.data_dir / FILE_NAME) as manifest:
            numbers = {each.name: each.partition_numbers for each in manifest.topics()}
            return manifest.sealed_end(numbers[name][0]) == 3

    soon(is_sealed)
    [end] = unflushed(doors, name)
    assert end.end_of_stream


def test_records_behind_an_open_transaction_are_not_waited_for(doors: Doors) -> None:
    name = next(names)
    with doors.smq.connect() as client:
        client.create_topic(name, 1)
    fill(doors, name, range(3))
    with (
        doors.smq.connect() as client,
        client.producer(transactional_id=name) as producer,
        producer.transaction(),
    ):
        producer.send(name, b"3")
        producer.flush()
        *entries, end = unflushed(doors, name)
        assert [each.message.offset for each in entries] == [0, 1, 2]
        assert end.end_of_stream


class SlowReader:
    """Gives nothing for so many waits, and then finds only a gap."""

    def __init__(self, waits: int) -> None:
        self.position, self.left = 0, waits

    async def wait(self, _: float) -> bool:
        self.left -= 1
        if self.left <= 0:
            self.position = 5
        return False

    def peek(self) -> None:
        return None

    def take_passed(self) -> list[CallRefused]:
        return []


def test_a_broker_that_is_slow_is_waited_for_and_one_that_gives_nothing_is_no_end() -> None:
    """An engine that reads segments and this counted too few records."""

    def written(waits: int) -> int:
        reader = SlowReader(waits)
        context: Any = None
        asyncio.run(_write(context, reader, 5))  # type: ignore[arg-type]
        return reader.position

    assert written(WAITS_MAX - 1) == 5
    with pytest.raises(CallRefused, match="gives no records from offset 0 on"):
        written(10 * WAITS_MAX)


def test_a_topic_that_is_not_there_has_its_status(doors: Doors) -> None:
    with refused(grpc.StatusCode.NOT_FOUND, "there is no topic"):
        unflushed(doors, "nowhere")


def test_the_hash_of_a_key_is_seaweedmqs() -> None:
    """As Go's util.HashToInt32 says: of the same bytes, with its sign."""
    assert key_hash(b"") == int.from_bytes(bytes.fromhex("d41d8cd9"), signed=True)
