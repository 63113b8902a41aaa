"""The broker as the agent uses it: connections that are used again, and one producer."""

import asyncio
from pathlib import Path

import pytest

from smq.app.agent.broker import QUESTIONS_MAX, BrokerSide
from smq.client.errors import NoSuchTopic
from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_connections_are_used_again_unless_their_work_failed(tmp_path: Path) -> None:
    async def talk(side: BrokerSide) -> None:
        first = await side.ask(lambda cluster: cluster)
        assert await side.ask(lambda cluster: cluster) is first
        with pytest.raises(NoSuchTopic):
            await side.ask(lambda cluster: cluster.topic("nowhere"))
        assert await side.ask(lambda cluster: cluster) is not first
        many = await asyncio.gather(*(side.ask(_name) for _ in range(3 * QUESTIONS_MAX)))
        assert len(side._idle) <= QUESTIONS_MAX
        assert {*many} == {many[0]}
        one, two = await asyncio.gather(side.producer(), side.producer())
        assert one is two
        assert await side.producer(lingers=False) is not one
        side.close()

    with SmqBroker(tmp_path) as broker:
        asyncio.run(talk(BrokerSide(broker.data_dir)))


def _name(cluster: Cluster) -> str:
    return cluster.cluster_id
