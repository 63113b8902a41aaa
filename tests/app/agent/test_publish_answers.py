"""What publishers of a real broker are answered: which records, when, and which are refused."""

from pathlib import Path
from time import time_ns

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import RecordType, RecordValue, ScalarType, Value
from smq.client.kafka.topic_changes import alter_topic
from smq.client.locate import cluster_at
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, Doors, opened, refused
from tests.app.agent.publishers import (
    ORDER,
    TIME_NS,
    Publishing,
    data,
    field_of,
    order,
    publishing,
    records_of,
    session_of,
    topic_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LONG = Value(string_value="x" * 100_000)  # So long that it is looked at in a thread.
MiB = 1024 * 1024


def close(ts_ns: int = 0) -> pb.PublishMessageRequest:
    return data(b"", ts_ns=ts_ns, ctrl=pb.ControlMessage(is_close=True))


@pytest.mark.parametrize("interval", [-7, 0, 1])
def test_each_record_is_answered_alone_without_an_interval(doors: Doors, interval: int) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition, interval) as stream:
        stream.send(*(data(b"x", ts_ns=TIME_NS + each) for each in range(200)))
        answers = stream.finish()
    assert [
        (each.ack_ts_ns - TIME_NS, each.base_offset, each.assigned_offset) for each in answers
    ] == [(each, each, each) for each in range(200)]


def test_an_answer_covers_no_more_records_than_its_interval(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition, 3) as stream:
        stream.send(*(data(b"x", ts_ns=TIME_NS + each) for each in range(200)))
        answers = stream.finish()
    covered = [each.assigned_offset - each.base_offset + 1 for each in answers]
    assert sum(covered) == 200
    assert max(covered) == 3
    assert [each.ack_ts_ns - TIME_NS for each in answers] == [
        each.assigned_offset for each in answers
    ]


def test_a_record_without_a_time_has_the_brokers_and_is_answered_by_it(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    before_ns = time_ns()
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"x"), close())
        first, last = stream.finish()
    assert before_ns - 10**9 < first.ack_ts_ns <= last.ack_ts_ns < time_ns() + 10**9
    [record] = records_of(doors, topic, 1)
    assert record.timestamp_ms == first.ack_ts_ns // 10**6


def test_a_close_is_no_record_and_flushes_those_before_it(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition, 10**6) as stream:
        stream.send(data(b"a", ts_ns=TIME_NS), close(TIME_NS + 7), data(b"b", ts_ns=TIME_NS + 9))
        answers = stream.finish()
    assert [(each.ack_ts_ns - TIME_NS, each.error) for each in answers] == [
        (0, ""), (7, ""), (9, ""),
    ]  # fmt: skip
    assert [answers[0].assigned_offset, answers[2].assigned_offset] == [0, 1]
    assert [bytes(each.value or b"") for each in records_of(doors, topic, 2)] == [b"a", b"b"]


def test_a_message_that_does_not_fit_its_topics_type_is_refused_with_its_field(
    doors: Doors,
) -> None:
    topic, [partition] = topic_of(doors, message_record_type=ORDER)
    small = RecordValue(fields={"id": Value(int32_value=7)})
    wrong = [
        RecordValue(fields={"note": Value(string_value="no id")}),
        RecordValue(fields={"id": Value(string_value="x"), "note": LONG}),
        RecordValue(fields={"id": Value(int64_value=1), "more": Value(bool_value=True)}),
    ]
    values = [small.SerializeToString(), *(each.SerializeToString() for each in wrong), b"50000"]
    with publishing(doors, topic, partition) as stream:
        for number, value in enumerate([*values, b"", values[0]]):
            stream.send(data(value, ts_ns=TIME_NS + number, sequence=number))
        answers = stream.finish()
    assert [each.ack_ts_ns - TIME_NS for each in answers] == [*range(7)]
    assert [each.sequence for each in answers] == [*range(7)]
    assert [(each.error_code, each.error) for each in answers] == [
        (0, ""),
        (42, "the field id is missing"),
        (42, "the field id is INT64, not STRING"),
        (42, "the record type has no field more"),
        (42, "its value is no RecordValue that all subscribers would read whole"),
        (42, "the field id is missing"),
        (0, ""),
    ]
    assert [bytes(each.value or b"") for each in records_of(doors, topic, 2)] == [values[0]] * 2


def test_a_stream_follows_the_type_of_its_topic(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    wider = RecordType(fields=[*ORDER.fields, field_of("more", ScalarType.BOOL)])
    more = RecordValue(fields={"id": Value(int64_value=1), "more": Value(bool_value=True)})
    session = session_of(doors, topic)
    records = Publishing(doors.agent.PublishRecord)
    records.send(agent_pb.PublishRecordRequest(session_id=session, value=more))
    assert records.read().error == ""
    with publishing(doors, topic, partition) as stream:
        for kind, error in (
            (ORDER, "the record type has no field more"),
            (wider, ""),
        ):
            doors.broker.ConfigureTopic(
                pb.ConfigureTopicRequest(topic=topic, message_record_type=kind)
            )
            stream.send(data(more.SerializeToString()))
            assert stream.read().error == error
            records.send(agent_pb.PublishRecordRequest(value=more))
            assert records.read().error == (f"record 2: {error}" if error else "")
        stream.finish()
    records.finish()


def test_a_typed_record_may_have_a_sequence_and_headers(doors: Doors) -> None:
    topic, _ = topic_of(doors)
    value = order(1).SerializeToString()
    # By their numbers: sequence 1000 is 300, header 1001 has the key "k" and the value "v".
    raw = b"\x1a" + bytes([len(value)]) + value
    raw += b"\xc0\x3e\xac\x02" + b"\xca\x3e\x06\x0a\x01k\x12\x01v"
    offsets = []
    for _ in range(2):
        stream = Publishing(doors.agent.PublishRecord)
        stream.send(agent_pb.PublishRecordRequest(session_id=session_of(doors, topic)), raw)
        [answer] = stream.finish()
        assert (answer.error, answer.ack_sequence, answer.sequence) == ("", 1, 300)
        offsets.append((answer.partition, answer.base_offset, answer.last_offset))
    assert offsets == [(0, 0, 0)] * 2
    with doors.smq.connect() as client:
        assert [each.high_water for each in client.offsets(f"shop.{topic.name}").values()] == [1]
    [record] = records_of(doors, topic, 1)
    assert (bytes(record.value or b""), record.headers) == (value, (("k", b"v"),))


def test_a_message_has_at_most_sixteen_mebibytes(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with cluster_at(doors.smq.data_dir) as cluster:
        alter_topic(cluster, f"shop.{topic.name}", {"max.message.bytes": str(20 * MiB)}, [])
    with publishing(doors, topic, partition) as stream:
        stream.send(data(bytes(16 * MiB - 100), ts_ns=TIME_NS))
        answer = stream.read()
        assert (answer.error, answer.assigned_offset) == ("", 0)
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"vs. {16 * MiB}"):
            stream.send(data(bytes(16 * MiB), ts_ns=TIME_NS))
            stream.read()


def test_clients_learn_the_address_that_is_advertised(tmp_path: Path) -> None:
    address = "queue.example:17777"
    advertised = SETTINGS | {"grpc.advertise": address}
    with SmqBroker(tmp_path, advertised) as broker, opened(broker) as doors:
        topic, [partition] = topic_of(doors)
        call = doors.broker
        assert call.FindBrokerLeader(pb.FindBrokerLeaderRequest()).broker == address
        assigned = [
            *call.ConfigureTopic(
                pb.ConfigureTopicRequest(topic=topic)
            ).broker_partition_assignments,
            *call.LookupTopicBrokers(
                pb.LookupTopicBrokersRequest(topic=topic)
            ).broker_partition_assignments,
            *call.GetTopicConfiguration(
                pb.GetTopicConfigurationRequest(topic=topic)
            ).broker_partition_assignments,
        ]
        assert [each.leader_broker for each in assigned] == [address] * 3
        with publishing(doors, topic, partition, name="p") as stream:
            asked = pb.GetTopicPublishersRequest(topic=topic)
            assert [each.broker for each in call.GetTopicPublishers(asked).publishers] == [address]
            stream.finish()
