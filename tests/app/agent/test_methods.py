"""A service as its descriptor has it: each call reaches its handler, the others are refused."""

import asyncio
from typing import Any

import grpc
import pytest

from shm import timings as memory
from shm.timings import RpcTimings
from smq.agent.proto import health_pb2, mq_agent_pb2 as pb, mq_broker_pb2, reflection_pb2
from smq.app.agent.gate import OpenGate
from smq.app.agent.methods import (
    REQUEST_BYTES_MAX,
    Context,
    _reader,
    service_of,
)
from smq.app.agent.refusals import CallRefused
from smq.app.front.observer import rpcs_of
from smq.model.rpcs import RPCS, STATUSES
from tests.app.agent.doors import refused, stubs_of
from tests.app.agent.streams import OpenStream

BYTES = "PublishRecord"
SERVICE = pb.DESCRIPTOR.services_by_name["SeaweedMessagingAgent"]


async def start(request: Any, _: Context) -> Any:
    if not request.publisher_name:
        raise ValueError("who are you?")
    return pb.StartPublishSessionResponse(session_id=7)


async def echo(_: Any, context: Context) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        if not request.message.session_id:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no session")
        assert request.message == pb.PublishRecordRequest.FromString(request.data)
        await context.write(pb.PublishRecordResponse(ack_sequence=request.message.session_id))


def test_calls_reach_their_handlers_and_others_are_unimplemented() -> None:
    async def talk() -> None:
        server, timings = grpc.aio.server(), RpcTimings.private()
        handlers = {"StartPublishSession": start, "PublishRecord": echo}
        server.add_generic_rpc_handlers(
            [service_of(SERVICE, handlers, timings, OpenGate(), ["PublishRecord"])]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await asyncio.to_thread(ask, port)
        await server.stop(0)
        assert counted(timings) == {
            "StartPublishSession": {"OK": 1, "INVALID_ARGUMENT": 2},
            "ClosePublishSession": {"UNIMPLEMENTED": 1},
            "PublishRecord": {"OK": 1, "FAILED_PRECONDITION": 1, "INVALID_ARGUMENT": 1},
        }
        assert timings.begun.sum() == 0
        assert timings.sums.sum() > 0

    asyncio.run(talk())


def ask(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stubs = stubs_of(SERVICE, channel)
        request = pb.StartPublishSessionRequest(publisher_name="p")
        assert stubs.StartPublishSession(request).session_id == 7
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "who are you?"):
            stubs.StartPublishSession(pb.StartPublishSessionRequest())
        with refused(grpc.StatusCode.UNIMPLEMENTED, "among themselves"):
            stubs.ClosePublishSession(pb.ClosePublishSessionRequest())
        stream = OpenStream(stubs.PublishRecord, pb.PublishRecordRequest(session_id=5))
        assert stream.read().ack_sequence == 5
        assert stream.finish() == []
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "no session"):
            OpenStream(stubs.PublishRecord, pb.PublishRecordRequest()).read()
        ask_nonsense(channel)


def ask_nonsense(channel: grpc.Channel) -> None:
    """Bytes that are no request, in both kinds of calls."""
    one = channel.unary_unary(f"/{SERVICE.full_name}/StartPublishSession")
    many = channel.stream_stream(f"/{SERVICE.full_name}/PublishRecord")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "no messaging_pb.StartPublishSessionRequest"):
        one(b"\xff", timeout=60)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "no messaging_pb.PublishRecordRequest"):
        next(many(iter([b"\xff"]), timeout=60))


def counted(timings: RpcTimings) -> dict[str, dict[str, int]]:
    return {each.method: dict(each.totals) for each in rpcs_of(timings)}


def test_each_method_of_each_service_is_counted() -> None:
    methods = {
        (service.full_name, method.name)
        for module in (mq_broker_pb2, pb, health_pb2, reflection_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert {*RPCS} == methods
    assert len(RPCS) == len(methods) <= memory.RPCS
    assert {each.name: each.value[0] for each in grpc.StatusCode} == {
        name: number for number, name in enumerate(STATUSES)
    }


def test_a_request_is_bounded_before_it_is_parsed() -> None:
    unary, stream = (SERVICE.methods_by_name[name] for name in ("StartPublishSession", BYTES))
    large = pb.StartPublishSessionRequest(publisher_name="x" * REQUEST_BYTES_MAX)
    found = _reader(unary, with_bytes=False)(large.SerializeToString())
    assert isinstance(found, CallRefused)
    assert found.status is grpc.StatusCode.RESOURCE_EXHAUSTED
    begun = pb.PublishRecordRequest(key=b"x" * REQUEST_BYTES_MAX).SerializeToString()
    with pytest.raises(CallRefused, match="at most 262144 bytes"):
        _ = _reader(stream, with_bytes=True)(begun).small_message
    small = pb.StartPublishSessionRequest(publisher_name="x")
    assert _reader(unary, with_bytes=False)(small.SerializeToString()) == small
    with pytest.raises(CallRefused, match="these bytes are no"):
        _ = _reader(stream, with_bytes=True)(b"\xff").message


def test_a_large_request_is_refused_with_a_sentence() -> None:
    async def talk() -> None:
        server = grpc.aio.server()
        handlers = {"StartPublishSession": start}
        server.add_generic_rpc_handlers(
            [service_of(SERVICE, handlers, RpcTimings.private(), OpenGate())]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await asyncio.to_thread(ask_for_much, port)
        await server.stop(0)

    asyncio.run(talk())


def ask_for_much(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = pb.StartPublishSessionRequest(publisher_name="x" * REQUEST_BYTES_MAX)
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "at most 262144 bytes"):
            stubs_of(SERVICE, channel).StartPublishSession(request)
