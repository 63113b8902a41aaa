"""Hands the RPCs of a service to what answers them, from the service's own descriptor.

A method that has none is UNIMPLEMENTED, with a sentence. What a handler raises for its caller is a
`Refused`, or an error of the broker's; anything else is a bug of ours, and gRPC logs it.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from smq.app.agent.refusals import CallRefused, attempted

Context: TypeAlias = grpc.aio.ServicerContext
Handler: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
"""Of a request, or of None where requests are a stream: that is read from the context."""

BETWEEN_BROKERS = (
    "SeaweedMQ's brokers call this among themselves; SMQ has no such brokers (docs/seaweedmq.md)"
)


class Received(NamedTuple):
    """A request, and its bytes as they came."""

    message: Any
    data: bytes


def service_of(
    service: ServiceDescriptor,
    handlers: Mapping[str, Handler],
    with_bytes: Collection[str] = (),
) -> grpc.GenericRpcHandler:
    """The service, as a server takes it. The requests of some methods come `Received`."""
    known = {method.name for method in service.methods}
    assert handlers.keys() <= known, f"{service.full_name} has no {handlers.keys() - known}"
    methods = {
        method.name: _method(
            method,
            handlers.get(method.name, _unimplemented),
            _reader(method, with_bytes=method.name in with_bytes),
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _reader(method: MethodDescriptor, *, with_bytes: bool) -> Callable[[bytes], Any]:
    read = GetMessageClass(method.input_type).FromString
    return (lambda data: Received(read(data), data)) if with_bytes else read


def _method(
    method: MethodDescriptor, handler: Handler, read: Callable[[bytes], Any]
) -> grpc.RpcMethodHandler:
    async def unary(request: Any, context: Context) -> Any:  # noqa: ANN401  (a message)
        return await _answered(handler(request, context), context)

    async def stream(_: Any, context: Context) -> None:  # noqa: ANN401  (its requests)
        await _answered(handler(None, context), context)

    async def to_one(_: Any, context: Context) -> Any:  # noqa: ANN401  (as above)
        return await _answered(handler(None, context), context)

    async def from_one(request: Any, context: Context) -> None:  # noqa: ANN401  (a message)
        await _answered(handler(request, context), context)

    forms: dict[tuple[bool, bool], tuple[Any, Any]] = {
        (False, False): (grpc.unary_unary_rpc_method_handler, unary),
        (True, True): (grpc.stream_stream_rpc_method_handler, stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, to_one),
        (False, True): (grpc.unary_stream_rpc_method_handler, from_one),
    }
    made, function = forms[method.client_streaming, method.server_streaming]
    return made(
        function,
        request_deserializer=read,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )


async def _answered(answer: Awaitable[Any], context: Context) -> Any:  # noqa: ANN401  (a message)
    found = await attempted(answer)
    if isinstance(found, CallRefused):
        await context.abort(found.status, found.sentence)
    return found


async def _unimplemented(_: Any, __: Context) -> None:  # noqa: ANN401  (no message)
    raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, BETWEEN_BROKERS)
