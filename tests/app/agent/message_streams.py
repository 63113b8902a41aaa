"""Streams of SubscribeMessage: topics with records, first messages, acknowledgements, commits."""

from typing import Any

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, PartitionOffset, Topic
from smq.client.kafka.group_admin import committed_offsets
from smq.client.locate import cluster_at
from smq.client.names import TopicPartition
from tests.app.agent.doors import Doors
from tests.app.agent.streams import OpenStream, kafka_name, topic_of

FIRST_MS = 1_790_000_000_000


def filled(doors: Doors, count: int, key: bytes | None = b"k") -> tuple[Topic, Partition]:
    topic, [partition] = topic_of(doors)
    fill(doors, topic, range(count), key)
    return topic, partition


def fill(doors: Doors, topic: Topic, numbers: range, key: bytes | None = b"k") -> None:
    with doors.smq.connect() as client, client.producer() as producer:
        for number in numbers:
            sent: dict[str, Any] = {"key": key, "timestamp_ms": FIRST_MS + number, "partition": 0}
            producer.send(kafka_name(topic), b"%d" % number, **sent)


def init(topic: Topic, partition: Partition, kind: int = 0, **rest: Any) -> Any:
    place = {each: rest.pop(each) for each in ("start_offset", "start_ts_ns") if each in rest}
    said = pb.SubscribeMessageRequest.InitMessage(
        topic=topic,
        partition_offset=PartitionOffset(partition=partition, **place),
        offset_type=kind,  # type: ignore[arg-type]
        **({"consumer_group": "g", "consumer_id": topic.name} | rest),
    )
    return pb.SubscribeMessageRequest(init=said)


def ack(record: Any, **rest: Any) -> Any:
    said = pb.SubscribeMessageRequest.AckMessage(
        ts_ns=record.data.ts_ns, key=record.data.key, **rest
    )
    return pb.SubscribeMessageRequest(ack=said)


def subscribed(doors: Doors, *requests: Any, **options: Any) -> OpenStream:
    return OpenStream(doors.broker.SubscribeMessage, *requests, **options)


def values(answers: list[Any]) -> list[bytes]:
    return [each.data.value for each in answers if each.WhichOneof("message") == "data"]


def committed(doors: Doors, group: str, topic: Topic) -> int | None:
    with cluster_at(doors.smq.data_dir) as cluster:
        return committed_offsets(cluster, group).get(TopicPartition(kafka_name(topic), 0))
