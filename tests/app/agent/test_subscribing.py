"""What subscriptions have in common: instances with several streams, and what they ask for."""

import asyncio
from uuid import UUID

import pytest

from smq.agent.layouts import RingLayout
from smq.agent.proto.mq_broker_pb2 import DataMessage
from smq.agent.topic_names import TopicName
from smq.app.agent.members import InstanceName
from smq.app.agent.subscribing import Instances, filter_of, is_explicit
from smq.app.agent.topics import KnownTopic
from smq.model.record_types import RecordField, text_of
from smq.model.topic_configs import RECORD_TYPE


class Call:
    """A call with metadata."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


def test_the_streams_of_an_instance_have_the_same_windows() -> None:
    instances, name = Instances(), InstanceName("g", "i")
    with instances.stream_of(name) as one:
        with instances.stream_of(name) as two, instances.stream_of(InstanceName("g", "j")) as other:
            assert one is two
            assert other is not one
        with instances.stream_of(name) as three:
            assert three is one
    with instances.stream_of(name) as later:
        assert later is not one


def explicit(call: Call) -> bool:
    return is_explicit(call)  # type: ignore[arg-type]


def test_acknowledgements_are_explicit_where_the_metadata_says_so() -> None:
    assert explicit(Call(("smq-ack", "explicit")))
    assert not explicit(Call(("smq-ack", "no"), ("other", "explicit")))
    assert not explicit(Call())


def test_a_filter_is_of_the_topics_columns() -> None:
    fields = text_of([RecordField("price", "INT64")])
    topic = KnownTopic(
        TopicName("kafka", "t"), UUID(int=1), {RECORD_TYPE: fields}, (RingLayout(1, 1),)
    )
    assert asyncio.run(filter_of(" ", topic)) is None
    keep = asyncio.run(filter_of("price > 1", topic))
    assert keep is not None
    assert keep([DataMessage()]) == []
    with pytest.raises(ValueError, match="there is no column cost"):
        asyncio.run(filter_of("cost > 1", topic))
