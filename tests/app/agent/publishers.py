"""Publishers of a test, by both of SeaweedMQ's doors, and what Kafka's clients read of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from queue import SimpleQueue
from typing import Any

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import (
    Field,
    Partition,
    RecordType,
    RecordValue,
    ScalarType,
    Topic,
    Type,
    Value,
)
from smq.client.consuming.batch.chunk import Record
from tests.app.agent.doors import Doors


def field_of(name: str, kind: int, **rest: Any) -> Field:
    return Field(name=name, type=Type(scalar_type=kind), **rest)  # type: ignore[arg-type]


ORDER = RecordType(
    fields=[
        field_of("id", ScalarType.INT64, is_required=True),
        field_of("note", ScalarType.STRING),
    ]
)
names = (f"t{number}" for number in count())
TIME_NS = 1_790_000_000_123_456_789


class Publishing:
    """A stream whose requests are sent one by one."""

    def __init__(self, call: Any) -> None:
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers = call(iter(self._requests.get, None))

    def send(self, *requests: Any) -> None:
        for request in requests:
            self._requests.put(request)

    def read(self) -> Any:
        return next(self._answers)

    def finish(self) -> list[Any]:
        self._requests.put(None)
        return [*self._answers]


def topic_of(doors: Doors, partitions: int = 1, **configs: Any) -> tuple[Topic, list[Partition]]:
    topic = Topic(namespace="shop", name=next(names))
    request = pb.ConfigureTopicRequest(topic=topic, partition_count=partitions, **configs)
    found = doors.broker.ConfigureTopic(request).broker_partition_assignments
    return topic, [each.partition for each in found]


def init(topic: Topic, partition: Partition, interval: int = 1, name: str = "") -> Any:
    said = pb.PublishMessageRequest.InitMessage(
        topic=topic, partition=partition, ack_interval=interval, publisher_name=name
    )
    return pb.PublishMessageRequest(init=said)


def data(value: bytes, **rest: Any) -> pb.PublishMessageRequest:
    return pb.PublishMessageRequest(data=pb.DataMessage(value=value, **rest))


@contextmanager
def publishing(
    doors: Doors, topic: Topic, partition: Partition, interval: int = 1, name: str = ""
) -> Iterator[Publishing]:
    stream = Publishing(doors.broker.PublishMessage)
    stream.send(init(topic, partition, interval, name))
    assert stream.read() == pb.PublishMessageResponse()
    yield stream


def records_of(doors: Doors, topic: Topic, count: int) -> list[Record]:
    """So many records of a topic, as Kafka's clients read them."""
    name = f"{topic.namespace}.{topic.name}"
    with doors.smq.connect() as client, client.consumer(name, start="earliest") as consumer:
        found: list[Record] = []
        for record in consumer:
            found.append(record)
            if len(found) == count:
                return found
    raise AssertionError


def session_of(doors: Doors, topic: Topic, partitions: int = 1, **rest: Any) -> int:
    request = agent_pb.StartPublishSessionRequest(
        topic=topic, partition_count=partitions, publisher_name="p", **rest
    )
    answer = doors.agent.StartPublishSession(request)
    assert answer.error == ""
    return int(answer.session_id)


def order(number: int) -> RecordValue:
    return RecordValue(fields={"id": Value(int64_value=number)})
