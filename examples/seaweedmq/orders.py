"""A shop's orders through SeaweedMQ's agent service, in Python.

    smq serve --agent-port 16777
    python -m examples.seaweedmq.orders localhost:16777

Typed orders go into two partitions, as their keys say. A group then adds up what its country has
bought: it acknowledges each order once it has counted it, so that it goes on there the next time.
Kafka's clients see the same records in the topic shop.orders.
"""

import sys
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from smq.agent.proto.mq_agent_pb2 import (
    DESCRIPTOR,
    PublishRecordRequest,
    StartPublishSessionRequest,
    SubscribeRecordRequest,
)
from smq.agent.proto.mq_schema_pb2 import Field, RecordType, RecordValue, Topic, Type, Value

TOPIC = Topic(namespace="shop", name="orders")
ORDER = RecordType(
    fields=[
        Field(name="country", type=Type(scalar_type="STRING"), is_required=True),
        Field(name="euros", type=Type(scalar_type="DOUBLE"), is_required=True),
    ]
)
ORDERS = {b"order-1": ("NL", 12.5), b"order-2": ("BE", 99.0), b"order-3": ("NL", 30.0)}


def calls_of(channel: grpc.Channel) -> SimpleNamespace:
    """The service's calls, by the names that its descriptor has."""
    service = DESCRIPTOR.services_by_name["SeaweedMessagingAgent"]
    calls = SimpleNamespace()
    for each in service.methods:
        form = channel.stream_stream if each.client_streaming else channel.unary_unary
        call = form(
            f"/{service.full_name}/{each.name}",
            request_serializer=GetMessageClass(each.input_type).SerializeToString,
            response_deserializer=GetMessageClass(each.output_type).FromString,
        )
        setattr(calls, each.name, call)
    return calls


def publish(agent: SimpleNamespace) -> None:
    """Append the orders: an answer says that some of them are in the log."""
    start = StartPublishSessionRequest(
        topic=TOPIC, partition_count=2, record_type=ORDER, publisher_name="shop"
    )
    session = checked(agent.StartPublishSession(start)).session_id

    def requests() -> Iterator[PublishRecordRequest]:
        yield PublishRecordRequest(session_id=session)
        for key, (country, euros) in ORDERS.items():
            fields = {"country": Value(string_value=country), "euros": Value(double_value=euros)}
            yield PublishRecordRequest(key=key, value=RecordValue(fields=fields))

    acked = 0
    for answer in agent.PublishRecord(requests()):
        acked = checked(answer).ack_sequence
    print(f"{acked} orders are in the log")


def bill(agent: SimpleNamespace, country: str, count: int) -> float:
    """The sum of so many orders from a country, from where its group was the last time."""
    requests = SimpleQueue[SubscribeRecordRequest | None]()
    init = SubscribeRecordRequest.InitSubscribeRecordRequest(
        consumer_group=f"bills-{country}",
        consumer_group_instance_id="bill-1",
        topic=TOPIC,
        filter=f"country = '{country}'",
    )
    requests.put(SubscribeRecordRequest(init=init))
    explicit = [("smq-ack", "explicit")]
    euros = 0.0
    for answer in agent.SubscribeRecord(iter(requests.get, None), metadata=explicit):
        if checked(answer).is_end_of_stream:
            break
        euros += answer.value.fields["euros"].double_value
        requests.put(SubscribeRecordRequest(ack_partition=answer.partition, offset=answer.offset))
        count -= 1
        if not count:
            requests.put(None)  # We send no more, and the stream ends.
    return euros


def checked(answer: Any) -> Any:  # noqa: ANN401  (protobuf's messages share no type)
    """An answer, if it says no error."""
    if answer.error:
        raise SystemExit(answer.error)
    return answer


def main() -> None:
    """Publish, then read."""
    with grpc.insecure_channel(sys.argv[1]) as channel:
        agent = calls_of(channel)
        publish(agent)
        print(f"NL has bought for {bill(agent, 'NL', 2):.2f} euros")


if __name__ == "__main__":
    main()
