"""Members of groups: named to the coordinator, known after a restart, never beside Kafka's."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import RecordValue, Topic, Value
from smq.app.agent.members import BYTES, NAME_MAX, GroupMembers, InstanceName
from smq.app.agent.refusals import CallRefused
from smq.client.consuming.group.group_protocol import read_assignment, write_assignment
from smq.client.kafka.group_admin import OUTSIDE, committed_offsets, describe_group
from smq.client.locate import cluster_at
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, Unavailable
from smq.testing.smq_broker import SmqBroker
from smq.wire.internal.groups import MEMBERS_MAX, GroupHeld, HeldGroup, HoldGroups
from tests.app.agent.doors import SETTINGS, Doors, opened, refused
from tests.app.agent.streams import OpenStream, kafka_name, soon, topic_of

pytestmark = pytest.mark.timeout(180)
A, B = InstanceName("g", "a"), InstanceName("g", "b", "User:alice")
PLACE = TopicPartition("t", 3)


class Coordinator:
    """Takes members by the rules of smq.coordinator.holding, or fails as it is told."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}
        self.generation = 0
        self.errors: list[ErrorCode] = []
        self.is_away = False
        self.asked: list[HoldGroups] = []

    async def hold(self, question: HoldGroups) -> list[GroupHeld]:
        await asyncio.sleep(0)
        self.asked.append(question)
        if self.is_away:
            raise Unavailable("coordinator", "it is away")
        return [self._hold(each) for each in question.groups]

    def _hold(self, held: HeldGroup) -> GroupHeld:
        if self.errors:
            return GroupHeld(self.errors.pop(0), -1, [])
        rows = self.groups.setdefault(held.group_id, {})
        before = []
        if held.generation < 0:
            ids = {each.member_id for each in held.members}
            before = [(row.said, row.assignment) for key, row in rows.items() if key not in ids]
            rows.clear()
        elif held.generation != self.generation:
            return GroupHeld(ErrorCode.ILLEGAL_GENERATION, -1, [])
        rows |= {each.member_id: each for each in held.members}
        for each in held.gone:
            rows.pop(each, None)
        self.generation += 1
        return GroupHeld(0, self.generation, before)

    def instances(self, group: str = "g") -> list[str]:
        return sorted(json.loads(row.said)[0] for row in self.groups.get(group, {}).values())


def talk(work: Callable[[Coordinator, GroupMembers], Awaitable[None]]) -> None:
    """Run some work beside members that are told."""

    async def run() -> None:
        coordinator = Coordinator()
        members = GroupMembers(coordinator.hold)
        telling = asyncio.create_task(members.keep_telling())
        try:
            async with asyncio.timeout(30):
                await work(coordinator, members)
        finally:
            telling.cancel()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (what is waited for has no event)
        await asyncio.sleep(0.01)


def test_an_instance_is_a_member_as_long_as_it_has_streams() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        async with members.present(A, "client", "10.0.0.7"):
            async with members.present(A, "client", "10.0.0.7"):
                assert coordinator.instances() == ["a"]
                [row] = coordinator.groups["g"].values()
                assert (row.client_id, row.client_host) == ("client", "/10.0.0.7")
                assert members.voice("g").member_id == row.member_id
            async with members.present(B, "client", "10.0.0.8"):
                assert coordinator.instances() == ["a", "b"]
        assert coordinator.instances() == []
        assert members.voice("g") == OUTSIDE

    talk(work)


def test_a_stream_without_a_group_has_no_member() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        async with members.present(InstanceName("", "a"), "client", "10.0.0.7"):
            members.note(InstanceName("", "a"), PLACE, 1)
        assert coordinator.asked == []

    talk(work)


def test_members_are_named_with_their_partitions() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        def has(*places: TopicPartition) -> bool:
            [row] = coordinator.groups["g"].values()
            return read_assignment(row.assignment.encode(BYTES)) == {*places}

        async with members.present(A, "client", "h"):
            members.note(A, PLACE, 1)
            members.note(A, PLACE, 1)
            await until(lambda: has(PLACE))
            members.note(A, PLACE, -1)
            members.note(A, PLACE, -1)
            await until(lambda: has())  # noqa: PLW0108  (nothing, as above)

    talk(work)


def test_a_group_with_kafkas_consumers_refuses_members_and_ends_their_streams() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        coordinator.errors = [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
        with pytest.raises(CallRefused, match="Kafka's protocol") as raised:
            async with members.present(A, "client", "h"):
                pass
        assert raised.value.status is grpc.StatusCode.FAILED_PRECONDITION
        async with members.present(A, "client", "h"):
            members.check("g")
            coordinator.errors = [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 1000
            members.note(A, PLACE, 1)
            await until(lambda: bool(members._rolls["g"].refused))
            with pytest.raises(CallRefused, match="Kafka's protocol"):
                members.check("g")
        members.check("g")

    talk(work)


def test_a_member_too_many_is_refused_alone() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        async with members.present(A, "client", "h"):
            coordinator.errors = [ErrorCode.GROUP_MAX_SIZE_REACHED]
            with pytest.raises(CallRefused, match="no more members") as raised:
                async with members.present(B, "client", "h"):
                    pass
            assert raised.value.status is grpc.StatusCode.RESOURCE_EXHAUSTED
            await until(lambda: members.voice("g") != OUTSIDE)
            members.check("g")
            assert coordinator.instances() == ["a"]

    talk(work)


def test_a_coordinator_that_was_away_or_has_forgotten_learns_all_members_again() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        coordinator.is_away = True
        present = members.present(A, "client", "h")
        entering = asyncio.create_task(present.__aenter__())
        await until(lambda: len(coordinator.asked) > 1)
        coordinator.is_away = False
        await entering
        coordinator.groups.clear()
        coordinator.generation = 77
        members.note(A, PLACE, 1)
        await until(lambda: coordinator.instances() == ["a"])
        coordinator.groups.clear()
        await members.renew("g")
        assert coordinator.instances() == ["a"]

    talk(work)


def test_many_members_are_named_some_at_a_time() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        names = [InstanceName("g", f"{each}") for each in range(3 * MEMBERS_MAX)]
        present = [members.present(each, "client", "h") for each in names]
        await asyncio.gather(*(each.__aenter__() for each in present))
        assert len(coordinator.instances()) == len(names)
        await members.renew("g")
        assert len(coordinator.instances()) == len(names)
        told = [sum(len(each.members) for each in asked.groups) for asked in coordinator.asked]
        assert max(told) <= MEMBERS_MAX

    talk(work)


def test_the_next_process_learns_what_members_of_the_one_before_had() -> None:
    async def work(coordinator: Coordinator, members: GroupMembers) -> None:
        present = [members.present(each, "client", "h") for each in (A, B)]
        await asyncio.gather(*(each.__aenter__() for each in present))
        for name in (A, B):
            members.note(name, PLACE._replace(partition=len(name.owner)), 1)
        members.stop()
        strange = HeldGroup("g", coordinator.generation, [], [])
        assert coordinator._hold(strange).error_code == 0
        assert len(coordinator.instances()) == 2
        for row in [*coordinator.groups["g"].values()]:
            had = write_assignment([PLACE._replace(partition=len(json.loads(row.said)[1]))])
            told = row._replace(assignment=had.decode(BYTES))
            coordinator.groups["g"][row.member_id] = told
        coordinator.groups["g"]["x"] = row._replace(member_id="x", said="what nobody can read")
        after = GroupMembers(coordinator.hold)
        telling = asyncio.create_task(after.keep_telling())
        async with after.present(A, "client", "h"):
            left_s, past = after.take_past("g", "t")
            assert left_s > 0
            assert past == {A: {0}, B: {len(B.owner)}}
            assert after.take_past("g", "t")[1] == after.take_past("no", "t")[1] == {}
        telling.cancel()

    talk(work)


@pytest.mark.parametrize(
    "name", [InstanceName("g", "x" * (NAME_MAX + 1)), InstanceName("ü" * 20_000, "a")], ids="ig"
)
def test_names_have_a_length(name: InstanceName) -> None:
    async def work(_: Coordinator, members: GroupMembers) -> None:
        with pytest.raises(ValueError, match="have at most"):
            async with members.present(name, "client", "h"):
                pass

    talk(work)


# --- with a broker --------------------------------------------------------------------------------


def fill(broker: SmqBroker, topic: Topic, partitions: int, count: int = 1) -> None:
    value = RecordValue(fields={"id": Value(int64_value=1)}).SerializeToString()
    with broker.connect() as client, client.producer() as producer:
        for partition in range(partitions):
            for _ in range(count):
                producer.send(kafka_name(topic), value, partition=partition)


def subscribed(doors: Doors, topic: Topic, group: str, name: str) -> OpenStream:
    said = pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
        topic=topic, consumer_group=group, consumer_group_instance_id=name
    )
    return OpenStream(doors.agent.SubscribeRecord, pb.SubscribeRecordRequest(init=said))


def shown(broker: SmqBroker, group: str) -> Any:
    with cluster_at(broker.data_dir) as cluster:
        return describe_group(cluster, group)


def partitions_of(broker: SmqBroker, group: str) -> dict[str, set[int]]:
    """What each instance has, as the group's members show it."""
    try:
        members = shown(broker, group).members
    except BrokerError as error:  # Nobody has come yet.
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    return {
        json.loads(each.member_metadata)[0]: {
            place.partition for place in read_assignment(each.member_assignment)
        }
        for each in members
    }


@pytest.mark.slow
def test_kafkas_consumers_do_not_join_a_group_whose_members_are_instances(doors: Doors) -> None:
    topic, _ = topic_of(doors, 2)
    fill(doors.smq, topic, 2)
    streams = [subscribed(doors, topic, "members", each) for each in "ab"]
    soon(lambda: sorted(map(sorted, partitions_of(doors.smq, "members").values())) == [[0], [1]])
    group = shown(doors.smq, "members")
    assert (group.group_state, group.protocol_type) == ("Stable", "seaweedmq")
    assert group.protocol_data == "smq.agent.sharing"
    assert {each.client_id for each in group.members} == {"a", "b"}
    assert {each.client_host for each in group.members} == {"/127.0.0.1"}
    with (
        doors.smq.connect() as client,
        client.consumer(kafka_name(topic), group="members") as consumer,
        pytest.raises(BrokerError) as raised,
    ):
        consumer.poll(30)
    assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for each in streams:
        each.finish()
    assert shown(doors.smq, "members").group_state == "Empty"
    with cluster_at(doors.smq.data_dir) as cluster:
        assert [*committed_offsets(cluster, "members").values()] == [1, 1]


@pytest.mark.slow
def test_a_subscriber_does_not_join_kafkas_consumers(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    fill(doors.smq, topic, 1)
    with (
        doors.smq.connect() as client,
        client.consumer(kafka_name(topic), group="kafkas", start="earliest") as consumer,
    ):
        consumer.poll(10)
        stream = subscribed(doors, topic, "kafkas", "a")
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "consumers of Kafka's protocol"):
            stream.read()
        stream.cancel()


@pytest.mark.slow
def test_sharing_survives_the_death_of_the_agent(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        topic, _ = topic_of(doors, 4)
        fill(broker, topic, 4)
        streams = [subscribed(doors, topic, "g", name) for name in "abc"]

        def are_shared() -> bool:
            return sorted(map(len, partitions_of(broker, "g").values())) == [1, 1, 2]

        soon(are_shared)
        before = partitions_of(broker, "g")
        broker.kill("agent")
        soon(lambda: broker.status().ready)
        with opened(broker) as again:
            # The first one would have all that nobody keeps for others.
            streams += [subscribed(again, topic, "g", name) for name in "cba"]
            soon(lambda: partitions_of(broker, "g") == before)
            for each in streams:
                each.cancel()
