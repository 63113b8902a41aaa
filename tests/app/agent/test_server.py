"""The agent's process: its ports are kept while it is down, and its records survive it."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Topic
from smq.app.agent.server import OPTIONS
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, opened
from tests.app.agent.streams import OpenStream, soon, topic_of

pytestmark = pytest.mark.timeout(120)
PENDING = "grpc.server_max_unrequested_time_in_server"


async def calls_of_a_busy_process(options: Sequence[tuple[str, int]]) -> set[grpc.StatusCode]:
    """The statuses of calls that come while another one has the loop."""
    began, goes_on = Event(), Event()

    async def answer(request: bytes, _: object) -> bytes:
        if request == b"long":
            began.set()
            goes_on.wait(60)
        return request

    server = grpc.aio.server(options=options)
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", {"m": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    def call() -> set[grpc.StatusCode]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = channel.unary_unary("/s/m")
            long = method.future(b"long", timeout=60)
            began.wait(60)
            others = [method.future(b"x", timeout=60) for _ in range(5)]
            goes_on.set()
            long.result()
            return {each.code() for each in others}

    try:
        return await asyncio.to_thread(call)
    finally:
        await server.stop(None)


def test_a_call_waits_as_long_as_its_caller_for_a_busy_process() -> None:
    impatient = [(name, 0 if name == PENDING else value) for name, value in OPTIONS]
    soon(lambda: grpc.StatusCode.CANCELLED in asyncio.run(calls_of_a_busy_process(impatient)))
    assert asyncio.run(calls_of_a_busy_process(OPTIONS)) == {grpc.StatusCode.OK}


@pytest.mark.slow
def test_a_killed_agent_comes_back_at_its_port_with_what_it_had_acknowledged(
    tmp_path: Path,
) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        topic, [partition] = topic_of(doors)
        said = pb.PublishMessageRequest.InitMessage(topic=topic, partition=partition)
        init = pb.PublishMessageRequest(init=said)
        record = pb.PublishMessageRequest(data=pb.DataMessage(value=b"x"))
        stream = OpenStream(doors.broker.PublishMessage, init, record)
        stream.read()
        assert stream.read().assigned_offset == 0
        before = broker.status().grpc
        broker.kill("agent")
        host, port = before.split(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        soon(lambda: broker.status().ready)
        assert broker.status().grpc == before
        with opened(broker) as again:
            asked = pb.FetchMessageRequest(topic=topic, partition=partition)
            found = again.broker.FetchMessage(asked, wait_for_ready=True)
            assert [each.value for each in found.messages] == [b"x"]


@pytest.mark.slow
def test_a_message_above_the_limit_and_large_metadata_are_refused_alone(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        exists = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x" * (17 << 20)))
        with pytest.raises(grpc.RpcError) as raised:
            doors.broker.TopicExists(exists)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        small = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x"))
        with pytest.raises(grpc.RpcError) as raised:
            doors.broker.TopicExists(small, metadata=(("large", "x" * (1 << 20)),))
        assert raised.value.code() is not grpc.StatusCode.OK
        assert not doors.broker.TopicExists(small).exists


@pytest.mark.slow
def test_two_brokers_do_not_share_a_port(tmp_path: Path) -> None:
    with SmqBroker(tmp_path / "one", SETTINGS) as broker:
        port = broker.status().grpc.rpartition(":")[2]
        with pytest.raises(RuntimeError, match=r"in use by process .*--grpc-port"):
            SmqBroker(tmp_path / "two", {"grpc.port": port})
