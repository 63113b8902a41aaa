"""Hands the RPCs of a service to what answers them, from the service's own descriptor.

A method that has none is UNIMPLEMENTED, with a sentence. What a handler raises for its caller is a
`CallRefused`, or an error of the broker's; anything else is a bug of ours, and gRPC logs it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from operator import methodcaller
from typing import Any, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from shm.timings import RpcTimings
from smq.agent.raw_fields import NoMessage, cut_field
from smq.app.agent.gate import Call, CallGate, RpcContext
from smq.app.agent.refusals import CallRefused, attempted
from smq.app.process.clock import monotonic_ns
from smq.model.rpcs import RPCS

Context: TypeAlias = Call
Handler: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
"""Of a request, or of None where requests are a stream: that is read from the context."""

BETWEEN_BROKERS = (
    "SeaweedMQ's brokers call this among themselves; SMQ has no such brokers (docs/seaweedmq.md)"
)

KiB = 1024
REQUEST_BYTES_MAX = 256 * KiB  # Without records: the largest begins 2,520 partitions of a stream.
_STATUSES = {each.value[0]: each for each in grpc.StatusCode}


class Received:
    """A request as it came. It is parsed once somebody looks at it: a message takes up to 26 times
    the memory of its bytes, and much more time."""

    __slots__ = ("_kind", "_message", "data")

    def __init__(self, kind: type[Message], data: bytes) -> None:
        self._kind, self.data, self._message = kind, data, None

    @property
    def message(self) -> Any:  # noqa: ANN401
        """The message. Raises CallRefused."""
        if self._message is None:
            self._message = _parsed(self._kind, self.data)
        return self._message

    def cut(self, number: int) -> tuple[Any, bytes | None]:
        """The message without a field, which may be large, and that field's bytes as they came.

        Raises CallRefused, TooManyFields, and ValueError if it has the field twice.
        """
        try:
            rest, found = cut_field(self.data, number)
        except NoMessage:
            raise _no_message(self._kind) from None
        return _parsed(self._kind, rest), found

    @property
    def small_message(self) -> Any:  # noqa: ANN401
        """The message, of which nothing is known that allows it to be large. Raises CallRefused."""
        _check_size(self.data)
        return self.message


class CountedCalls:
    """Counts the calls of a method."""

    def __init__(self, timings: RpcTimings, service: str, method: str) -> None:
        self._timings, self._rpc = timings, RPCS.index((service, method))

    async def counted(self, answer: Awaitable[Any], context: RpcContext) -> Any:  # noqa: ANN401
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
        if is_refused and found.status is grpc.StatusCode.CANCELLED:
            raise asyncio.CancelledError  # Nobody is there to be told.
        if is_refused:
            await context.abort(found.status, found.sentence)
        return found


def service_of(
    service: ServiceDescriptor,
    handlers: Mapping[str, Handler],
    timings: RpcTimings,
    gate: CallGate,
    with_bytes: Collection[str] = (),
) -> grpc.GenericRpcHandler:
    """The service, as a server takes it: its calls come through a gate. The requests of some
    methods come `Received`."""
    known = {method.name for method in service.methods}
    assert handlers.keys() <= known, f"{service.full_name} has no {handlers.keys() - known}"
    methods = {
        method.name: _handled(
            GuardedMethod(method, handlers.get(method.name, _unimplemented), gate),
            _reader(method, with_bytes=method.name in with_bytes),
            CountedCalls(timings, service.full_name, method.name),
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _reader(method: MethodDescriptor, *, with_bytes: bool) -> Callable[[bytes], Any]:
    """Reads requests. gRPC has no status for what raises here: of what is no request it gives the
    refusal."""
    kind = GetMessageClass(method.input_type)
    if with_bytes:
        return partial(Received, kind)

    def read(data: bytes) -> Any:  # noqa: ANN401  (a message, or CallRefused)
        try:
            _check_size(data)
            return _parsed(kind, data)
        except CallRefused as refused:
            return refused

    return read


def _check_size(data: bytes) -> None:
    """Before it is parsed, in which time nobody else is answered. Raises CallRefused."""
    if len(data) > REQUEST_BYTES_MAX:
        sentence = f"a request without records has at most {REQUEST_BYTES_MAX} bytes"
        raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)


def _parsed(kind: type[Message], data: bytes) -> Any:  # noqa: ANN401  (a message)
    try:
        return kind.FromString(data)
    except DecodeError:
        raise _no_message(kind) from None


def _no_message(kind: type[Message]) -> CallRefused:
    sentence = f"these bytes are no {kind.DESCRIPTOR.full_name}"
    return CallRefused(grpc.StatusCode.INVALID_ARGUMENT, sentence)


class GuardedMethod:
    """A method behind a gate.

    gRPC reads the request of a unary call before it calls anybody. Where callers log in, nothing is
    read of who has not: for gRPC these methods are streams, which look the same on the wire.
    """

    def __init__(self, method: MethodDescriptor, handler: Handler, gate: CallGate) -> None:
        self._name, self._handler, self._gate = method.name, handler, gate
        self._has_request = not method.client_streaming
        self._is_read_late = gate.reads_late and self._has_request
        self._answers_late = self._is_read_late and not method.server_streaming
        self.takes_one = self._has_request and not self._is_read_late
        self.gives_one = not (method.server_streaming or self._answers_late)

    async def answer(self, request: Any, context: RpcContext) -> Any:  # noqa: ANN401  (a message)
        """The answer to a unary call. Raises as handlers do, and CallRefused."""
        call = await self._gate.enter(context, self._name)
        with self._gate.opened(call):
            await call.pay()
            if self._is_read_late and (request := await self._gate.first(context)) is grpc.aio.EOF:
                raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
            if isinstance(request, CallRefused):
                raise request
            found = await self._handler(request if self._has_request else None, call)
            call.stand()
            if self._answers_late:
                await context.write(found)
            if found is not None:
                call.charge_answer(found)
        return found if self.gives_one else None


def _handled(
    guarded: GuardedMethod,
    read: Callable[[bytes], Any],
    calls: CountedCalls,
) -> grpc.RpcMethodHandler:
    async def answered(request: Any, context: RpcContext) -> Any:  # noqa: ANN401  (as gRPC has it)
        return await calls.counted(guarded.answer(request, context), context)

    forms = {
        (True, True): grpc.unary_unary_rpc_method_handler,
        (False, False): grpc.stream_stream_rpc_method_handler,
        (False, True): grpc.stream_unary_rpc_method_handler,
        (True, False): grpc.unary_stream_rpc_method_handler,
    }
    return forms[guarded.takes_one, guarded.gives_one](
        answered,
        request_deserializer=read,
        response_serializer=methodcaller("SerializeToString"),
    )


async def _unimplemented(_: Any, __: Context) -> None:  # noqa: ANN401  (no message)
    raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, BETWEEN_BROKERS)
