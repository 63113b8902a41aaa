"""Commits of groups: the newest offsets, kept while the broker is away, refused where they mix."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import grpc
import pytest

from smq.agent.layouts import RingLayout
from smq.agent.topic_names import TopicName
from smq.app.agent import commits as commits_room
from smq.app.agent.commits import GroupCommits, NamedGroup, group_of
from smq.app.agent.members import GroupMembers, InstanceName
from smq.app.agent.refusals import CallRefused
from smq.app.agent.topics import KnownTopic
from smq.client.errors import BrokerUnavailable
from smq.client.kafka.group_admin import OUTSIDE
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, Unavailable
from smq.security.principals import Peer, Principal
from smq.wire.internal.groups import GroupHeld, HoldGroups

TOPIC = KnownTopic(TopicName("kafka", "t"), UUID(int=1), {}, (RingLayout(1, 1),))
NAME = TopicPartition("t", 0)
G = NamedGroup("g")


class Asked:
    """A broker that takes commits, or raises what it is to raise next."""

    def __init__(self) -> None:
        self.committed: list[Any] = []
        self.errors: list[Exception] = []
        self.takes: list[bool] = []
        self.known: dict[TopicPartition, int] = {}

    async def ask(self, work: Callable[..., Any], asker: Peer | None = None) -> Any:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        said = dict(work.keywords)  # type: ignore[attr-defined]
        if "group_id" in said:
            return self.known
        if "noted" in said:
            said["offsets"] = {name: each.offset for name, each in said.pop("noted").items()}
        self.committed.append(said)
        return self.takes.pop(0) if self.takes else True


class Standing(Asked):
    """A broker that stands still until it is `free`."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.is_asked = asyncio.Event(), asyncio.Event()

    async def ask(self, work: Callable[..., Any], asker: Peer | None = None) -> Any:
        self.is_asked.set()
        await self.free.wait()
        return await super().ask(work, asker)


class Holder:
    """A coordinator that takes members, unless it `is_away`."""

    is_away = False

    async def hold(self, question: HoldGroups) -> list[GroupHeld]:
        if self.is_away:
            raise Unavailable("coordinator", "it is away")
        return [GroupHeld(0, 1, []) for _ in question.groups]


async def nobody(_: HoldGroups) -> list[GroupHeld]:
    raise Unavailable("coordinator", "it is away")


def always(_: KnownTopic) -> bool:
    return True


def commits_with(*errors: Exception) -> tuple[Asked, GroupCommits]:
    asked = Asked()
    asked.errors += errors
    return asked, GroupCommits(asked, GroupMembers(nobody), always)  # type: ignore[arg-type]


def test_seaweedmqs_name_of_a_group_of_kafka_is_that_group() -> None:
    assert [group_of(each) for each in ("kafka-cg-g", "g", "")] == ["g", "g", ""]


def test_the_newest_offset_of_each_partition_is_committed_once() -> None:
    async def talk() -> None:
        asked, commits = commits_with()
        for offset in (1, 2, 3):
            commits.note(G, TOPIC, 0, offset)
        commits.note(NamedGroup(""), TOPIC, 0, 9)
        await asyncio.gather(commits.flush("g"), commits.flush("g"), commits.flush(""))
        assert asked.committed == [{"group": "g", "offsets": {NAME: 3}, "voice": OUTSIDE}]

    asyncio.run(talk())


def test_an_offset_of_a_deleted_topic_is_not_committed_for_another_of_its_name() -> None:
    async def talk() -> None:
        asked, there = Asked(), {TOPIC.id}
        new = TOPIC._replace(id=UUID(int=2))
        members = GroupMembers(nobody)
        commits = GroupCommits(asked, members, lambda topic: topic.id in there)  # type: ignore[arg-type]
        commits.note(G, TOPIC, 0, 40)
        there.clear()
        there.add(new.id)
        await commits.flush("g")
        assert asked.committed == []
        commits.note(G, new, 0, 1)
        commits.note(G, TOPIC, 0, 41)
        await commits.flush("g")
        assert [each["offsets"] for each in asked.committed] == [{NAME: 1}]

    asyncio.run(talk())


def test_an_offset_that_cannot_be_committed_now_is_committed_later() -> None:
    async def talk() -> None:
        asked = Standing()
        asked.errors.append(BrokerUnavailable("away"))
        commits = GroupCommits(asked, GroupMembers(nobody), always)  # type: ignore[arg-type]
        commits.note(G, TOPIC, 0, 1)
        flushing = asyncio.create_task(commits.flush("g"))
        await asked.is_asked.wait()
        commits.note(G, TOPIC, 0, 2)
        asked.free.set()
        assert not await flushing
        commits.check(G)
        assert await commits.flush("g")
        assert asked.committed == [{"group": "g", "offsets": {NAME: 2}, "voice": OUTSIDE}]

    asyncio.run(talk())


class Slow(Asked):
    """A broker that takes its time to tell what is committed, and more to commit."""

    def __init__(self) -> None:
        super().__init__()
        self.is_told = asyncio.Event()
        self.errors.append(BrokerUnavailable("away"))

    async def ask(self, work: Callable[..., Any], asker: Peer | None = None) -> Any:
        if "group_id" in work.keywords:  # type: ignore[attr-defined]
            told = dict(self.known)
            await asyncio.sleep(5 * commits_room.EVERY_S)
            self.is_told.set()
            return told
        if not self.errors:
            await self.is_told.wait()
        return await super().ask(work, asker)


def test_an_offset_is_not_on_its_way_while_the_groups_commits_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits_room, "EVERY_S", 0.01)

    async def talk() -> None:
        asked = Slow()
        asked.known = {NAME: 3}
        commits = GroupCommits(asked, GroupMembers(nobody), always)  # type: ignore[arg-type]
        keeping = asyncio.create_task(commits.keep_committing())
        commits.note(G, TOPIC, 0, 7)
        async with asyncio.timeout(10):
            assert await commits.begin(G) == {NAME: 7}
        keeping.cancel()

    asyncio.run(talk())


def test_an_offset_that_cannot_be_committed_now_is_where_its_group_goes_on() -> None:
    async def talk() -> None:
        asked, commits = commits_with(BrokerUnavailable("away"))
        asked.known = {NAME: 3, TopicPartition("t", 1): 5}
        alice = NamedGroup("g", Peer(Principal("User", "alice"), "10.0.0.7"))
        commits.note(NamedGroup("other"), TOPIC, 0, 9)
        commits.note(alice, TOPIC, 0, 7)
        assert await commits.begin(alice) == asked.known | {NAME: 7}
        asked.errors.append(BrokerUnavailable("away"))
        assert await commits.begin(G) == asked.known | {NAME: 7}
        await commits.flush("g")
        assert await commits.begin(G) == asked.known

    asyncio.run(talk())


def test_a_commit_that_takes_long_holds_up_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits_room, "EVERY_S", 0.001)
    quick = asyncio.Event()

    class Slow(Asked):
        async def ask(self, work: Callable[..., Any], asker: Peer | None = None) -> Any:
            if work.keywords["group"] == "slow":  # type: ignore[attr-defined]
                await asyncio.Event().wait()
            quick.set()
            return await super().ask(work, asker)

    async def talk() -> None:
        commits = GroupCommits(Slow(), GroupMembers(nobody), always)  # type: ignore[arg-type]
        keeping = asyncio.create_task(commits.keep_committing())
        async with asyncio.timeout(60):
            for offset in range(3):
                commits.note(NamedGroup("slow"), TOPIC, 0, offset)
                commits.note(G, TOPIC, 0, offset)
                await quick.wait()
                quick.clear()
        assert {*commits._turns} <= {"slow", "g"}
        keeping.cancel()

    asyncio.run(talk())


def test_the_wait_for_a_commit_is_half_of_what_is_promised() -> None:
    assert (commits_room.LATE_S, commits_room.EVERY_S) == (0.2, 0.1)


def test_a_group_that_refuses_commits_ends_its_subscribers_until_another_begins() -> None:
    async def talk() -> None:
        mixed = CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "it has Kafka's consumers")
        _, commits = commits_with(mixed)
        commits.note(G, TOPIC, 0, 1)
        await commits.flush("g")
        commits.check(NamedGroup("other"))
        with pytest.raises(CallRefused, match="Kafka's consumers"):
            commits.check(G)
        await commits.begin(G)
        commits.check(G)

    asyncio.run(talk())


def test_a_broker_that_stops_is_waited_for_no_longer_than_that_takes() -> None:
    class Silent:
        async def ask(self, *_: object) -> None:
            await asyncio.Event().wait()

    async def talk() -> None:
        commits = GroupCommits(Silent(), GroupMembers(nobody), always)  # type: ignore[arg-type]
        commits.stop()
        commits.note(G, TOPIC, 0, 1)
        await commits.flush("g")

    asyncio.run(talk())


def test_a_commit_goes_on_without_its_caller_and_before_the_later_ones() -> None:
    async def talk() -> None:
        asked = Standing()
        commits = GroupCommits(asked, GroupMembers(nobody), always)  # type: ignore[arg-type]
        commits.note(G, TOPIC, 0, 3)
        beginning = asyncio.create_task(commits.begin(G))
        await asked.is_asked.wait()
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        asked.is_asked.clear()
        commits.note(G, TOPIC, 0, 4)
        flushes = [asyncio.create_task(commits.flush("g")) for _ in range(2)]
        await asyncio.sleep(0)
        flushes.pop(0).cancel()
        await asyncio.sleep(0)
        assert not asked.is_asked.is_set()
        asked.free.set()
        async with asyncio.timeout(60):
            await flushes[0]
        assert [each["offsets"] for each in asked.committed] == [{NAME: 3}, {NAME: 4}]
        assert not commits._turns

    asyncio.run(talk())


def test_a_commit_goes_on_after_the_wait_of_a_broker_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits_room, "STOP_S", 0.001)

    async def talk() -> None:
        asked = Standing()
        commits = GroupCommits(asked, GroupMembers(nobody), always)  # type: ignore[arg-type]
        commits.note(G, TOPIC, 0, 3)
        flushing = asyncio.create_task(commits.flush("g"))
        await asked.is_asked.wait()
        commits.stop()
        await commits.flush("g")
        commits.note(G, TOPIC, 0, 4)
        flushing.cancel()
        await commits.flush("g")
        asked.free.set()
        monkeypatch.setattr(commits_room, "STOP_S", 60)
        commits.stop()
        await commits.flush("g")
        assert [each["offsets"] for each in asked.committed] == [{NAME: 3}, {NAME: 4}]

    asyncio.run(talk())


def test_a_group_that_refuses_one_user_takes_the_commits_of_others() -> None:
    async def talk() -> None:
        asked, commits = commits_with(
            BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed"),
        )
        alice, bob = (
            NamedGroup("g", Peer(Principal("User", name), "10.0.0.7")) for name in ("alice", "bob")
        )
        for group in (alice, bob):
            commits.note(group, TOPIC, 0, 1)
            await commits.flush("g")
        with pytest.raises(CallRefused, match="not allowed") as raised:
            commits.check(alice)
        assert raised.value.status is grpc.StatusCode.PERMISSION_DENIED
        commits.check(bob)
        assert asked.committed == [{"group": "g", "offsets": {NAME: 1}, "voice": OUTSIDE}]

    asyncio.run(talk())


def test_the_commit_of_who_has_a_partition_now_replaces_one_that_failed() -> None:
    async def talk() -> None:
        asked, commits = commits_with(BrokerUnavailable("away"))
        alice, bob = (
            NamedGroup("g", Peer(Principal("User", name), "10.0.0.7")) for name in ("alice", "bob")
        )
        commits.note(alice, TOPIC, 0, 50)
        commits.note(alice, TOPIC, 1, 5)
        await commits.flush("g")
        commits.note(bob, TOPIC, 0, 100)
        await commits.flush("g")
        found = [each["offsets"] for each in asked.committed]
        assert {NAME: 100} in found
        assert {TopicPartition("t", 1): 5} in found
        assert len(found) == 2

    asyncio.run(talk())


def test_a_member_commits_and_again_once_the_coordinator_knows_it() -> None:
    async def talk() -> None:
        generation = 4

        async def hold(question: HoldGroups) -> list[GroupHeld]:
            nonlocal generation
            generation += 1
            return [GroupHeld(0, generation, []) for _ in question.groups]

        asked, members = Asked(), GroupMembers(hold)
        commits = GroupCommits(asked, members, always)  # type: ignore[arg-type]
        telling = asyncio.create_task(members.keep_telling())
        async with members.present(InstanceName("g", "a"), "client", "10.0.0.7"):
            asked.takes = [False]
            commits.note(G, TOPIC, 0, 1)
            await commits.flush("g")
            voices = [each["voice"] for each in asked.committed]
            assert [each.generation for each in voices] == [5, 6]
            assert {each.member_id.startswith("client-") for each in voices} == {True}
        telling.cancel()

    asyncio.run(talk())


def test_a_group_whose_last_member_has_just_left_keeps_its_commits() -> None:
    async def talk() -> None:
        asked, holder = Asked(), Holder()
        members = GroupMembers(holder.hold)
        commits = GroupCommits(asked, members, always)  # type: ignore[arg-type]
        telling = asyncio.create_task(members.keep_telling())
        async with members.present(InstanceName("g", "a"), "client", "10.0.0.7"):
            holder.is_away = True
            commits.note(G, TOPIC, 0, 5)
        asked.takes = [False]
        assert not await commits.flush("g")
        commits.check(G)
        assert await commits.flush("g")
        assert [each["offsets"] for each in asked.committed] == [{NAME: 5}] * 2
        telling.cancel()

    asyncio.run(talk())


def test_a_group_that_does_not_know_who_is_outside_is_kafkas() -> None:
    async def talk() -> None:
        asked, commits = commits_with()
        asked.takes = [False]
        commits.note(G, TOPIC, 0, 1)
        await commits.flush("g")
        with pytest.raises(CallRefused, match="consumers of Kafka's protocol"):
            commits.check(G)

    asyncio.run(talk())


def test_a_group_whose_members_the_coordinator_has_not_heard_of_keeps_its_commits() -> None:
    async def talk() -> None:
        asked, holder = Asked(), Holder()
        members = GroupMembers(holder.hold)
        commits = GroupCommits(asked, members, always)  # type: ignore[arg-type]
        telling = asyncio.create_task(members.keep_telling())
        async with members.present(InstanceName("g", "a"), "client", "10.0.0.7"):
            holder.is_away = True
            await members.renew("g")
            asked.takes = [False]
            commits.note(G, TOPIC, 0, 1)
            await commits.flush("g")
            commits.check(G)
            holder.is_away = False
            await members.renew("g")
            await commits.flush("g")
            assert [each["offsets"] for each in asked.committed] == [{NAME: 1}, {NAME: 1}]
            assert asked.committed[-1]["voice"].member_id
        telling.cancel()

    asyncio.run(talk())
