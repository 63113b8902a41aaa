"""SeaweedMQ's services as a test calls them: stubs made from the descriptors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from smq.agent.proto import mq_agent_pb2, mq_broker_pb2
from smq.testing.smq_broker import SmqBroker

CALL_SECONDS_MAX = 100.0  # Of a stream, as a whole.
OPTIONS = [("grpc.max_receive_message_length", 128 * 1024 * 1024)]
SETTINGS = {"grpc.port": "0", "agent.port": "0"}


def stubs_of(service: ServiceDescriptor, channel: grpc.Channel) -> Any:
    """An object with the service's calls."""
    found = {each.name: _stub(service, each, channel) for each in service.methods}
    return SimpleNamespace(**found)


def _stub(service: ServiceDescriptor, method: Any, channel: grpc.Channel) -> Callable[..., Any]:
    forms = {
        (False, False): channel.unary_unary,
        (True, True): channel.stream_stream,
        (True, False): channel.stream_unary,
        (False, True): channel.unary_stream,
    }
    call = forms[method.client_streaming, method.server_streaming](
        f"/{service.full_name}/{method.name}",
        request_serializer=_written,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )

    def called(request: Any, **options: Any) -> Any:
        return call(request, **({"timeout": CALL_SECONDS_MAX} | options))

    return called


def _written(request: Any) -> bytes:
    """A request, which may be one that no protobuf writes."""
    return request if isinstance(request, bytes) else bytes(request.SerializeToString())


class Doors:
    """Both services of a broker."""

    def __init__(self, broker: SmqBroker, channels: tuple[grpc.Channel, grpc.Channel]) -> None:
        self.smq = broker
        services = mq_broker_pb2.DESCRIPTOR.services_by_name
        self.broker = stubs_of(services["SeaweedMessaging"], channels[0])
        services = mq_agent_pb2.DESCRIPTOR.services_by_name
        self.agent = stubs_of(services["SeaweedMessagingAgent"], channels[1])


@contextmanager
def opened(broker: SmqBroker) -> Iterator[Doors]:
    """The services of a running broker."""
    status = broker.status()
    with (
        grpc.insecure_channel(status.grpc, options=OPTIONS) as first,
        grpc.insecure_channel(status.agent, options=OPTIONS) as second,
    ):
        yield Doors(broker, (first, second))


@contextmanager
def refused(status: grpc.StatusCode, words: str) -> Iterator[None]:
    """A call in the block is refused, with this status and these words."""
    with pytest.raises(grpc.RpcError) as raised:
        yield
    assert raised.value.code() is status, raised.value
    assert words in raised.value.details(), raised.value
