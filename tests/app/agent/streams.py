"""Streams of a test: requests are sent one by one, answers read in between."""

from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, Topic
from tests.app.agent.doors import Doors
from tests.app.fake_broker import eventually

_names = (f"t{number}" for number in count())


soon = partial(eventually, what="what the test waits for")


class OpenStream:
    """A stream of both directions."""

    def __init__(self, call: Any, *requests: Any, **options: Any) -> None:
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self.send(*requests)
        self._answers = call(iter(self._requests.get, None), **options)

    def send(self, *requests: Any) -> None:
        for request in requests:
            self._requests.put(request)

    def read(self) -> Any:
        return next(self._answers)

    def read_many(self, number: int) -> list[Any]:
        return [self.read() for _ in range(number)]

    def finish(self) -> list[Any]:
        self._requests.put(None)
        return [*self._answers]

    def finish_reading(self) -> list[Any]:
        """What is answered until the other side ends the stream."""
        return [*self._answers]

    def cancel(self) -> None:
        self._answers.cancel()
        self._requests.put(None)


def topic_of(doors: Doors, partitions: int = 1, **configs: Any) -> tuple[Topic, list[Partition]]:
    """A new topic, with the ranges of its partitions."""
    topic = Topic(namespace="shop", name=f"{next(_names)}")
    request = pb.ConfigureTopicRequest(topic=topic, partition_count=partitions, **configs)
    found = doors.broker.ConfigureTopic(request).broker_partition_assignments
    return topic, [each.partition for each in found]


def kafka_name(topic: Topic) -> str:
    return f"{topic.namespace}.{topic.name}"
