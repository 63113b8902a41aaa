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
from smq.app.agent.methods import Context, Handler
from smq.app.agent.shares import Share, Sharings
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.agent.translation import partition_message, range_of, topic_name
from smq.app.process.clock import monotonic_ms

PARTITIONS_DEFAULT = 1
REBALANCE_S_DEFAULT, REBALANCE_S_MAX = 10, 600
LOOK_S = 1.0


class CoordinateCalls:
    """Answers SubscriberToSubCoordinator. `told`: the address of this door."""

    def __init__(self, topics: KnownTopics, sharings: Sharings, told: str) -> None:
        self._topics, self._sharings, self._told = topics, sharings, told

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
        rebalance_s = min(max(0, init.rebalance_seconds) or REBALANCE_S_DEFAULT, REBALANCE_S_MAX)
        share = self._sharings.join(group, topic, partitions_max)
        try:
            await _Instance(self._topics, topic, share, self._told, 1000 * rebalance_s).serve(
                context
            )
        finally:
            share.leave()


class _Instance:
    """One instance, and what it was told."""

    def __init__(
        self, topics: KnownTopics, topic: KnownTopic, share: Share, told: str, rebalance_ms: int
    ) -> None:
        self._topics, self._topic, self._share, self._told = topics, topic, share, told
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
        """The topic may have more partitions. Raises Refused if it is gone."""
        self._topic = self._topics.find(self._topic.name)
        self._share.grow(self._topic.layout.partition_count)

    def _give(self) -> list[pb.SubscriberToSubCoordinatorResponse]:
        given = (range_in(self._topic.layout, each) for each, _ in self._share.take())
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
            self._share.release(partition)

    async def _read(self, context: Context) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            if request.WhichOneof("message") == "ack_un_assignment":
                let_go = range_of(request.ack_un_assignment.partition)
                self._release(self._topic.partition_of(let_go))
