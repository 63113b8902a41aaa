"""The health of the services: of both ports, for everybody, until the process stops."""

import asyncio
from typing import Any

import grpc
import pytest

from smq.agent.proto import health_pb2 as pb
from smq.app.agent.health_calls import WATCHERS_MAX, HealthCalls
from smq.app.agent.refusals import CallRefused
from tests.app.agent.doors import Doors, refused, stubs_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

A = pb.HealthCheckResponse


class Watcher:
    """A call of Watch, and what it was told."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.news = asyncio.Event()

    async def write(self, answer: pb.HealthCheckResponse) -> None:
        self.told.append(answer.status)
        self.news.set()


def test_each_port_is_healthy_and_knows_its_own_service(doors: Doors) -> None:
    status = doors.smq.status()
    for address, own in (
        (status.grpc, "messaging_pb.SeaweedMessaging"),
        (status.agent, "messaging_pb.SeaweedMessagingAgent"),
    ):
        with grpc.insecure_channel(address) as channel:
            health = stubs_of(pb.DESCRIPTOR.services_by_name["Health"], channel)
            for name in ("", own):
                assert health.Check(pb.HealthCheckRequest(service=name)).status == A.SERVING
            with refused(grpc.StatusCode.NOT_FOUND, "no service other"):
                health.Check(pb.HealthCheckRequest(service="other"))
            watching = health.Watch(pb.HealthCheckRequest(service="other"))
            assert next(watching).status == A.SERVICE_UNKNOWN
            watching.cancel()


def test_a_watcher_of_a_service_learns_that_it_stops() -> None:
    async def talk() -> None:
        calls, known, unknown = HealthCalls("s"), Watcher(), Watcher()
        watch: Any = calls.handlers()["Watch"]
        watching = [
            asyncio.create_task(watch(pb.HealthCheckRequest(service=name), watcher))
            for name, watcher in (("s", known), ("other", unknown))
        ]
        await asyncio.gather(known.news.wait(), unknown.news.wait())
        calls.stop()
        await asyncio.gather(*watching)
        assert known.told == [A.SERVING, A.NOT_SERVING]
        assert unknown.told == [A.SERVICE_UNKNOWN]
        calls._watchers = WATCHERS_MAX
        with pytest.raises(CallRefused, match="ask with Check"):
            await watch(pb.HealthCheckRequest(), Watcher())
        calls._watchers = 0
        late = Watcher()
        await watch(pb.HealthCheckRequest(), late)
        assert late.told == [A.NOT_SERVING]

    asyncio.run(talk())
