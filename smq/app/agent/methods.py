"""Hands the RPCs of a service to what answers them, from the service's own descriptor.

A method that has none is UNIMPLEMENTED, with a sentence. What a handler raises for its caller is a
`Refused`, or an error of the broker's; anything else is a bug of ours, and gRPC logs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from shm.timings import RpcTimings
from smq.app.agent.refusals import CallRefused, attempted
from smq.app.process.clock import monotonic_ns
from smq.model.rpcs import RPCS

Context: TypeAlias = grpc.aio.ServicerContext
Handler: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
"""Of a request, or of None where requests are a stream: that is read from the context."""

BETWEEN_BROKERS = (
    "SeaweedMQ's brokers call this among themselves; SMQ has no such brokers (docs/seaweedmq.md)"
)


_STATUSES = {each.value[0]: each for each in grpc.StatusCode}


class Received(NamedTuple):
    """A request, and its bytes as they came."""

    message: Any
    data: bytes


class CountedCalls:
    """Counts the calls of a method."""

    def __init__(self, timings: RpcTimings, service: str, method: str) -> None:
        self._timings, self._rpc = timings, RPCS.index((service, method))

    async def counted(self, answer: Awaitable[Any], context: Context) -> Any:  # noqa: ANN401
        """What a call answers; refuses it with a status if it raises one of REFUSALS."""
        self._timings.begin(self._rpc)
        began_ns, status = monotonic_ns(), grpc.StatusCode.UNKNOWN
        try:
            found = await attempted(answer)
            is_refused = isinstance(found, CallRefused)
            status = found.status if is_refused else grpc.StatusCode.OK
        except asyncio.CancelledError:
            status = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AbortError:
            code = context.code()
            status = code if isinstance(code, grpc.StatusCode) else _STATUSES.get(code, status)
            raise
        finally:
            self._timings.end(self._rpc, status.value[0], monotonic_ns() - began_ns)
        if is_refused:
            await context.abort(found.status, found.sentence)
        return found


def service_of(
    service: ServiceDescriptor,
    handlers: Mapping[str, Handler],
    timings: RpcTimings,
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
            CountedCalls(timings, service.full_name, method.name),
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _reader(method: MethodDescriptor, *, with_bytes: bool) -> Callable[[bytes], Any]:
    read = GetMessageClass(method.input_type).FromString
    return (lambda data: Received(read(data), data)) if with_bytes else read


def _method(
    method: MethodDescriptor, handler: Handler, read: Callable[[bytes], Any], calls: CountedCalls
) -> grpc.RpcMethodHandler:
    async def unary(request: Any, context: Context) -> Any:  # noqa: ANN401  (a message)
        return await calls.counted(handler(request, context), context)

    async def stream(_: Any, context: Context) -> None:  # noqa: ANN401  (its requests)
        await calls.counted(handler(None, context), context)

    async def to_one(_: Any, context: Context) -> Any:  # noqa: ANN401  (as above)
        return await calls.counted(handler(None, context), context)

    async def from_one(request: Any, context: Context) -> None:  # noqa: ANN401  (a message)
        await calls.counted(handler(request, context), context)

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


async def _unimplemented(_: Any, __: Context) -> None:  # noqa: ANN401  (no message)
    raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, BETWEEN_BROKERS)
