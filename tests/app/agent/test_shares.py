"""Shares of instances: told of what moves, and forgotten once all have gone."""

import asyncio
from uuid import UUID

from smq.agent.layouts import RingLayout
from smq.agent.topic_names import TopicName
from smq.app.agent.members import InstanceName, Past
from smq.app.agent.shares import Sharings
from smq.app.agent.topics import KnownTopic

AT = ("g", "shop.orders")
A, B, C = (InstanceName("g", each) for each in "abc")


def nothing(_: str, __: str) -> tuple[float, Past]:
    return 0, {}


TOPIC = KnownTopic(TopicName("shop", "orders"), UUID(int=1), {}, (RingLayout(1, 2),))


def test_instances_of_a_group_share_and_notice_moving_partitions() -> None:
    async def talk() -> None:
        sharings = Sharings(nothing)
        one = sharings.join(A, TOPIC, 9)
        assert one.take() == [(0, False), (1, False)]
        one.news.clear()
        two = sharings.join(B, TOPIC, 9)
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
        sharings = Sharings(nothing)
        one, two = (sharings.join(InstanceName("", ""), TOPIC, 9) for _ in range(2))
        assert len(one.take()) == len(two.take()) == 2
        one.grow(3)
        assert len(one.take()) == 1

    asyncio.run(talk())


def test_an_instance_that_comes_back_after_a_restart_has_its_partitions_again() -> None:
    async def talk() -> None:
        past = {A: frozenset({1}), B: frozenset({0})}
        sharings = Sharings(lambda group, topic: (60, past if (group, topic) == AT else {}))
        one = sharings.join(A, TOPIC, 9)
        assert one.take() == [(1, False)]
        two = sharings.join(B, TOPIC, 9)
        assert two.take() == [(0, False)]
        assert one.to_release() == two.to_release() == []

    asyncio.run(talk())


def test_an_instance_that_does_not_come_back_loses_its_partitions() -> None:
    async def talk() -> None:
        sharings = Sharings(lambda _, __: (0.05, {A: frozenset({0}), B: frozenset({1, 7})}))
        one, other = sharings.join(A, TOPIC, 9), sharings.join(C, TOPIC, 9)
        assert (one.take(), other.take()) == ([(0, False)], [])
        other.news.clear()
        await other.news.wait()
        assert other.take() == [(1, True)]

    asyncio.run(talk())
