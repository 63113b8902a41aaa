"""Each RPC, called by stubs that are made from SeaweedMQ's own descriptors."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.app.agent.methods import BETWEEN_BROKERS
from smq.model.rpcs import RPCS
from tests.agent.seaweedmq import their_services
from tests.app.agent.doors import Doors, refused, stubs_of
from tests.app.agent.streams import OpenStream, topic_of
from tests.app.agent.test_rights import REQUESTS, outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SERVICES = their_services()
BROKER, AGENT = "messaging_pb.SeaweedMessaging", "messaging_pb.SeaweedMessagingAgent"
OTHERS: dict[str, Callable[[Any], Any]] = {
    "ListTopics": lambda d: d.broker.ListTopics(pb.ListTopicsRequest()),
    "TopicExists": lambda d: d.broker.TopicExists(pb.TopicExistsRequest(topic={"name": "t"})),
    "ConfigureTopic": topic_of,
    "ClosePublishSession": lambda d: d.agent.ClosePublishSession(
        agent_pb.ClosePublishSessionRequest()
    ),
}
REFUSED = {
    "PublisherToPubBalancer": pb.PublisherToPubBalancerRequest,
    "AssignTopicPartitions": pb.AssignTopicPartitionsRequest,
    "ClosePublishers": pb.ClosePublishersRequest,
    "CloseSubscribers": pb.CloseSubscribersRequest,
    "PublishFollowMe": pb.PublishFollowMeRequest,
    "SubscribeFollowMe": pb.SubscribeFollowMeRequest,
}


class TheirDoors:
    """Both services by SeaweedMQ's messages: requests become them, and answers are them."""

    def __init__(self, channels: tuple[grpc.Channel, grpc.Channel]) -> None:
        self.broker = speaking(BROKER, channels[0])
        self.agent = speaking(AGENT, channels[1])


def speaking(name: str, channel: grpc.Channel) -> SimpleNamespace:
    stubs = stubs_of(SERVICES[name], channel)
    return SimpleNamespace(
        **{
            each.name: translated(getattr(stubs, each.name), GetMessageClass(each.input_type))
            for each in SERVICES[name].methods
        }
    )


def translated(stub: Any, request_class: Any) -> Callable[..., Any]:
    def theirs(request: Any) -> Any:
        found = request_class.FromString(request.SerializeToString())
        assert type(found).DESCRIPTOR.file.pool is SERVICES[BROKER].file.pool
        return found

    def call(request: Any, **options: Any) -> Any:
        given = map(theirs, request) if hasattr(request, "__next__") else theirs(request)
        return stub(given, **options)

    return call


@pytest.fixture
def theirs(doors: Doors) -> Iterator[Any]:
    status = doors.smq.status()
    with (
        grpc.insecure_channel(status.grpc) as first,
        grpc.insecure_channel(status.agent) as second,
    ):
        yield TheirDoors((first, second))


def test_each_rpc_is_answered_to_stubs_of_its_own_descriptors(doors: Doors, theirs: Any) -> None:
    topic, [partition] = topic_of(doors)
    data = pb.DataMessage(key=b"k", value=b"v")
    init = pb.PublishMessageRequest.InitMessage(topic=topic, partition=partition)
    requests = pb.PublishMessageRequest(init=init), pb.PublishMessageRequest(data=data)
    _, answer = OpenStream(theirs.broker.PublishMessage, *requests).finish()
    assert (answer.error, answer.assigned_offset) == ("", 0)
    found = {name: outcome(each, theirs, topic, partition) for name, each in REQUESTS.items()}
    assert found == dict.fromkeys(REQUESTS, "ok")
    fetched = theirs.broker.FetchMessage(pb.FetchMessageRequest(topic=topic, partition=partition))
    assert [(each.key, each.value) for each in fetched.messages] == [(b"k", b"v")]
    for call in OTHERS.values():
        call(theirs)


def test_calls_between_its_brokers_are_refused_with_a_sentence(theirs: Any) -> None:
    for name, request in REFUSED.items():
        with refused(grpc.StatusCode.UNIMPLEMENTED, BETWEEN_BROKERS):
            call = getattr(theirs.broker, name)
            answer = OpenStream(call, request()) if is_stream(name) else call(request())
            answer.finish()


def is_stream(name: str) -> bool:
    [method] = [each for each in SERVICES[BROKER].methods if each.name == name]
    return bool(method.client_streaming)


def test_each_rpc_of_both_services_is_called() -> None:
    served = {method for service, method in RPCS if service in SERVICES}
    assert {*REQUESTS, *OTHERS, *REFUSED} == served
