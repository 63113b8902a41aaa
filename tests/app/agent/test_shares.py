"""Shares of instances: told of what moves, and forgotten once all have gone."""

import asyncio
from uuid import UUID

from smq.agent.layouts import RingLayout
from smq.agent.topic_names import TopicName
from smq.app.agent.shares import Sharings
from smq.app.agent.topics import KnownTopic

TOPIC = KnownTopic(TopicName("shop", "orders"), UUID(int=1), {}, (RingLayout(1, 2),))


def test_instances_of_a_group_share_and_notice_moving_partitions() -> None:
    async def talk() -> None:
        sharings = Sharings()
        one = sharings.join("g", TOPIC, 9)
        assert one.take() == [(0, False), (1, False)]
        one.news.clear()
        two = sharings.join("g", TOPIC, 9)
        assert one.news.is_set()
        [moving] = one.to_release()
        two.news.clear()
        one.release(moving)
        assert two.news.is_set()
        assert two.take() == [(moving, True)]
        two.leave()
        assert one.take() == [(moving, True)]
        one.leave()
        assert sharings._shared == {}

    asyncio.run(talk())


def test_subscribers_without_a_group_share_with_no_other() -> None:
    async def talk() -> None:
        sharings = Sharings()
        one, two = (sharings.join("", TOPIC, 9) for _ in range(2))
        assert len(one.take()) == len(two.take()) == 2
        one.grow(3)
        assert len(one.take()) == 1

    asyncio.run(talk())
