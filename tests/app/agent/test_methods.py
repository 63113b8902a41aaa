"""A service as its descriptor has it: each call reaches its handler, the others are refused."""

import asyncio
from typing import Any

import grpc

from smq.agent.proto import mq_agent_pb2 as pb
from smq.app.agent.methods import Context, service_of
from tests.app.agent.doors import refused, stubs_of
from tests.app.agent.streams import OpenStream

SERVICE = pb.DESCRIPTOR.services_by_name["SeaweedMessagingAgent"]


async def start(request: Any, _: Context) -> Any:
    if not request.publisher_name:
        raise ValueError("who are you?")
    return pb.StartPublishSessionResponse(session_id=7)


async def echo(_: Any, context: Context) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        assert request.message == pb.PublishRecordRequest.FromString(request.data)
        await context.write(pb.PublishRecordResponse(ack_sequence=request.message.session_id))


def test_calls_reach_their_handlers_and_others_are_unimplemented() -> None:
    async def talk() -> None:
        server = grpc.aio.server()
        handlers = {"StartPublishSession": start, "PublishRecord": echo}
        server.add_generic_rpc_handlers([service_of(SERVICE, handlers, ["PublishRecord"])])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await asyncio.to_thread(ask, port)
        await server.stop(0)

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
