"""SubscriberToSubCoordinator: tells instances of a group which partitions are theirs.

An instance that is to give one up is told so, and says when it has; if it does not within its time
for that, the partition is another's all the same.
"""

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from smq.agent.layouts import range_of as range_in
from smq.agent.proto import mq_broker_pb2 as pb
from smq.app.agent.commits import group_of
from smq.app.agent.gate import host_of
from smq.app.agent.members import GroupMembers, InstanceName
from smq.app.agent.methods import Context, Handler
from smq.app.agent.shares import Share, Sharings
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.agent.translation import partition_message, range_of, topic_name
from smq.app.process.clock import monotonic_ms
from smq.client.names import TopicPartition

PARTITIONS_DEFAULT = 1
REBALANCE_S_DEFAULT, REBALANCE_S_MAX = 10, 600
LOOK_S = 1.0


class CoordinateCalls:
    """Answers SubscriberToSubCoordinator. `told`: the address of this door."""

    def __init__(
        self, topics: KnownTopics, sharings: Sharings, members: GroupMembers, told: str
    ) -> None:
        self._topics, self._sharings, self._told = topics, sharings, told
        self._members = members

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"SubscriberToSubCoordinator": self._coordinate}

    async def _coordinate(self, _: Any, context: Context) -> None:  # noqa: ANN401
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        if first.WhichOneof("message") != "init":
            raise ValueError("the first message of a stream is its init")
        init = first.init
        group = group_of(init.consumer_group)
        topic = self._topics.asked(context, topic_name(init.topic), group)
        partitions_max = max(0, init.max_partition_count) or PARTITIONS_DEFAULT
        name = InstanceName(group, init.consumer_group_instance_id, context.owner)
        client_id = name.instance or context.peer()
        async with self._members.present(name, client_id, host_of(context.peer())):
            share = self._sharings.join(name, topic, partitions_max)
            at = _Coordinated(name, self._members, share)
            instance = _Instance(self._topics, topic, at, self._told, rebalance_ms(init))
            try:
                await instance.serve(context)
            finally:
                at.leave()


def rebalance_ms(init: pb.SubscriberToSubCoordinatorRequest.InitMessage) -> int:
    """How long an instance that says so at its beginning may keep a partition that is to move."""
    return 1000 * min(max(0, init.rebalance_seconds) or REBALANCE_S_DEFAULT, REBALANCE_S_MAX)


class _Coordinated:
    """The share of an instance; the group's members show what it has."""

    def __init__(self, name: InstanceName, members: GroupMembers, share: Share) -> None:
        self._name, self._members, self.share = name, members, share
        self._has: set[TopicPartition] = set()

    def take(self, topic: KnownTopic) -> list[int]:
        """The partitions that are its own from now on."""
        taken = [each for each, _ in self.share.take()]
        for each in taken:
            self._has.add(TopicPartition(topic.kafka_name, each))
            self._members.note(self._name, TopicPartition(topic.kafka_name, each), 1)
        return taken

    def release(self, topic: KnownTopic, partition: int) -> None:
        """It has let a partition go."""
        self.share.release(partition)
        self._let_go(TopicPartition(topic.kafka_name, partition))

    def leave(self) -> None:
        """It is gone."""
        self.share.leave()
        for each in [*self._has]:
            self._let_go(each)

    def _let_go(self, place: TopicPartition) -> None:
        if place in self._has:
            self._has.discard(place)
            self._members.note(self._name, place, -1)


class _Instance:
    """One instance, and what it was told."""

    def __init__(
        self, topics: KnownTopics, topic: KnownTopic, at: _Coordinated, told: str, rebalance_ms: int
    ) -> None:
        self._topics, self._topic, self._told = topics, topic, told
        self._at, self._share = at, at.share
        self._rebalance_ms = rebalance_ms
        self._asked_back: dict[int, int] = {}  # Until when each may be kept.

    async def serve(self, context: Context) -> None:
        """Tell it of its partitions until it goes."""
        reading = asyncio.create_task(self._read(context))
        reading.add_done_callback(lambda _: self._share.news.set())
        try:
            while not reading.done():
                self._share.news.clear()
                self._look()
                for each in (*self._take_back(), *self._give()):
                    await context.write(each)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._share.news.wait()
            reading.result()
        finally:
            reading.cancel()

    def _look(self) -> None:
        """The topic may have more partitions. Raises CallRefused if it is gone."""
        self._topic = self._topics.find(self._topic.name)
        self._share.grow(self._topic.layout.partition_count)

    def _give(self) -> list[pb.SubscriberToSubCoordinatorResponse]:
        given = (range_in(self._topic.layout, each) for each in self._at.take(self._topic))
        return [
            pb.SubscriberToSubCoordinatorResponse(
                assignment=pb.SubscriberToSubCoordinatorResponse.Assignment(
                    partition_assignment=pb.BrokerPartitionAssignment(
                        partition=partition_message(each), leader_broker=self._told
                    )
                )
            )
            for each in given
        ]

    def _take_back(self) -> list[pb.SubscriberToSubCoordinatorResponse]:
        now_ms, said = monotonic_ms(), []
        for partition in self._share.to_release():
            if partition not in self._asked_back:
                self._asked_back[partition] = now_ms + self._rebalance_ms
                taken = partition_message(range_in(self._topic.layout, partition))
                back = pb.SubscriberToSubCoordinatorResponse.UnAssignment(partition=taken)
                said.append(pb.SubscriberToSubCoordinatorResponse(un_assignment=back))
            elif now_ms >= self._asked_back[partition]:
                self._release(partition)
        return said

    def _release(self, partition: int) -> None:
        if self._asked_back.pop(partition, None) is not None:
            self._at.release(self._topic, partition)

    async def _read(self, context: Context) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            if request.WhichOneof("message") == "ack_un_assignment":
                let_go = range_of(request.ack_un_assignment.partition)
                self._release(self._topic.partition_of(let_go))
