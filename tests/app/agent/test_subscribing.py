"""What subscriptions have in common: instances with several streams, and what they ask for."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from smq.agent.in_flight import InstanceWindows, PartitionWindow, RecordIdentity
from smq.agent.layouts import RingLayout
from smq.agent.read_records import ReadRecord
from smq.agent.topic_names import TopicName
from smq.app.agent.live import Live, LiveSubscriber
from smq.app.agent.members import GroupMembers, InstanceName
from smq.app.agent.starts import PlacesKnown
from smq.app.agent.subscribing import (
    GroupInstance,
    Instances,
    Subscriptions,
    filter_of,
    is_explicit,
)
from smq.app.agent.topics import KnownTopic
from smq.client.names import TopicPartition
from smq.model.offset_types import LogEnds, OffsetType, WantedPlace
from smq.model.record_types import RecordField, text_of
from smq.model.topic_configs import RECORD_TYPE
from smq.wire.internal.groups import GroupHeld, HoldGroups

RECORD = RecordIdentity(1, b"k")


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
    assert keep.wanted([ReadRecord()]) == []
    assert keep.places == 1
    with pytest.raises(ValueError, match="there is no column cost"):
        asyncio.run(filter_of("cost > 1", topic))


class Ending:
    """A subscription of one record, which the test ends."""

    def __init__(self, windows: InstanceWindows) -> None:
        self.window, self.subscriber, self.name = PartitionWindow(0), None, None
        self.terms = SimpleNamespace(instance=windows)
        windows.add(self.window)
        self.window.take(0, RECORD, 0)
        windows.delivered(self.window, 0)

    def acknowledge(self, offset: int) -> bool:
        return self.window.acknowledge(offset)

    async def close(self) -> None:
        self.terms.instance.remove(self.window)


def test_an_acknowledgement_in_the_turn_in_which_its_stream_ends_is_unknown() -> None:
    async def talk() -> None:
        unknown: list[int] = []
        windows = InstanceWindows(lambda: unknown.append(1))
        instance = InstanceName("g", "i")
        ending: Any = Ending(windows)
        around: Any = SimpleNamespace(
            live=Live[LiveSubscriber](), commits=SimpleNamespace(members=GroupMembers(nobody))
        )
        subscriptions = Subscriptions(around)
        subscriptions.opened(ending, instance, windows)
        end = asyncio.create_task(subscriptions.end(ending))
        await asyncio.sleep(0)
        subscriptions.settle(windows, RECORD, nack=False)
        await end
        subscriptions.settle(windows, RECORD, nack=False)
        assert unknown == [1, 1]

    asyncio.run(talk())


@pytest.mark.parametrize("kind", OffsetType)
def test_a_subscription_keeps_the_commit_where_an_exact_place_is_asked_for(
    kind: OffsetType,
) -> None:
    async def at_14(_: object) -> int:
        return 14

    async def talk() -> bool:
        means: Any = SimpleNamespace(
            topics=SimpleNamespace(setting=lambda *_: "1000"),
            broker=SimpleNamespace(ask=at_14),
            feeds=SimpleNamespace(cursor=lambda *_: SimpleNamespace(position=14)),
            commits=SimpleNamespace(members=GroupMembers(nobody), note=lambda *_: None),
            live=Live[LiveSubscriber](),
        )
        member = GroupInstance(
            InstanceName("g", "i"), InstanceWindows(), "", 0, tracks=lambda _: True
        )
        topic = KnownTopic(TopicName("kafka", "t"), UUID(int=1), {}, (RingLayout(1, 1),))
        known = PlacesKnown({TopicPartition("t", 0): 12}, {0: LogEnds(10, 20)})
        wanted = WantedPlace(kind, 14)
        subscription, _ = await Subscriptions(means).begin(member, topic, 0, wanted, known)
        return subscription.keeps_commit

    assert asyncio.run(talk()) == kind.name.startswith("EXACT")


async def nobody(_: HoldGroups) -> list[GroupHeld]:
    return []
