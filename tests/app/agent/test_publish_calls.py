"""Records through SeaweedMQ's two doors into a real broker's log, and what publishers are told."""

from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, RecordValue, Topic, Value
from tests.app.agent.doors import Doors, refused
from tests.app.agent.publishers import (
    ORDER,
    TIME_NS,
    Publishing,
    data,
    init,
    names,
    order,
    publishing,
    records_of,
    session_of,
    topic_of,
)
from tests.app.agent.streams import soon

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_each_record_has_its_offset_and_the_senders_nanosecond(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"one", key=b"k", ts_ns=TIME_NS))
        first = stream.read()
        assert (first.ack_ts_ns, first.assigned_offset, first.error) == (TIME_NS, 0, "")
        stream.send(data(b"two"), data(b"three"))
        rest = [*stream.finish()]
    assert [each.assigned_offset for each in rest] == [1, 2]
    assert all(each.ack_ts_ns > TIME_NS - 10**18 for each in rest)
    found = records_of(doors, topic, 3)
    assert [bytes(each.value or b"") for each in found] == [b"one", b"two", b"three"]
    assert [each.key for each in found] == [b"k", None, None]
    assert found[0].timestamp_ms == TIME_NS // 10**6


def test_headers_go_into_the_record(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    headers = [pb.Header(key="a", value=b"1"), pb.Header(key="b")]
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"one", headers=headers))
        stream.finish()
    [record] = records_of(doors, topic, 1)
    assert record.headers == (("a", b"1"), ("b", None))


def test_with_an_interval_an_answer_covers_many_records_and_a_close_is_none(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition, 128) as stream:
        stream.send(*(data(b"x", ts_ns=TIME_NS + each) for each in range(300)))
        close = pb.DataMessage(ts_ns=TIME_NS + 999, ctrl=pb.ControlMessage(is_close=True))
        stream.send(pb.PublishMessageRequest(data=close))
        answers = [stream.read()]
        while answers[-1].ack_ts_ns != TIME_NS + 999:
            answers.append(stream.read())
        assert stream.finish() == []
    *acks, _ = answers
    bases = [each.base_offset for each in acks]
    assert bases == [0, *(each.assigned_offset + 1 for each in acks[:-1])]
    assert acks[-1].assigned_offset == 299
    assert acks[-1].ack_ts_ns == TIME_NS + 299
    assert len(acks) < 100
    with doors.smq.connect() as client, client.consumer() as consumer:
        consumer.assign([(f"shop.{topic.name}", 0)])
        assert {*consumer.find("latest").values()} == {300}


def test_a_publisher_that_reads_nothing_holds_nothing_up(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    stream = Publishing(doors.broker.PublishMessage)
    stream.send(init(topic, partition), *(data(b"x" * 100) for _ in range(12_000)))
    assert len(records_of(doors, topic, 12_000)) == 12_000
    hello, *answers = stream.finish()
    assert hello == pb.PublishMessageResponse()
    assert answers[-1].assigned_offset == 11_999


def test_a_refused_record_is_named_and_the_stream_goes_on(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition) as stream:
        too_late = 4_000_000_000 * 10**9
        stream.send(data(b"one"), data(b"bad", ts_ns=too_late), data(b"bad", ts_ns=-5))
        stream.send(init(topic, partition), data(b"x" * 2_000_000), data(b"two"))
        answers = stream.finish()
    assert [each.error_code for each in answers] == [0, 42, 42, 42, 10, 0]
    assert answers[1].ack_ts_ns == too_late
    assert "further from the broker's" in answers[1].error
    assert "one init" in answers[3].error
    assert [each.assigned_offset for each in (answers[0], answers[-1])] == [0, 1]


def test_a_stream_that_begins_wrongly_gets_the_reason_and_ends(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    other = Partition(ring_size=4096, range_start=0, range_stop=2520)
    for first, code, words in (
        (data(b"early"), 42, "first message of a stream is its init"),
        (init(Topic(namespace="shop", name="nowhere"), partition), 2, "no topic shop/nowhere"),
        (init(topic, other), 3, "its ring has 4096 slots"),
    ):
        stream = Publishing(doors.broker.PublishMessage)
        stream.send(first)
        [answer] = stream.finish()
        assert (answer.error_code, answer.should_close) == (code, True)
        assert words in answer.error


def test_a_record_that_is_sent_again_with_its_number_is_appended_once(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    for _ in range(2):
        with publishing(doors, topic, partition, name="till-7") as stream:
            stream.send(data(b"one", sequence=1), data(b"two", sequence=2))
            answers = stream.finish()
        assert [(each.sequence, each.assigned_offset) for each in answers] == [(1, 0), (2, 1)]
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"three", sequence=1))
        [answer] = stream.finish()
    assert answer.assigned_offset == 2


def test_a_streams_records_do_not_go_into_a_later_topic_of_the_name(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"one"))
        assert stream.read().assigned_offset == 0
        with doors.smq.connect() as client:
            client.delete_topic(f"shop.{topic.name}")
        doors.broker.ConfigureTopic(pb.ConfigureTopicRequest(topic=topic, partition_count=1))
        stream.send(data(b"two"))
        [answer] = stream.finish()
    assert (answer.error_code, answer.error) == (2, f"there is no topic shop/{topic.name}")


def test_publishers_are_listed_while_they_are_connected(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    asked = pb.GetTopicPublishersRequest(topic=topic)
    with publishing(doors, topic, partition, name="till-7") as stream:
        stream.send(data(b"one"), data(b"two"))
        stream.read()
        stream.read()
        [found] = doors.broker.GetTopicPublishers(asked).publishers
        assert (found.publisher_name, found.partition) == ("till-7", partition)
        assert (found.last_acked_offset, found.is_active) == (1, True)
        stream.finish()
    assert [*doors.broker.GetTopicPublishers(asked).publishers] == []


def test_the_agents_records_are_typed_and_counted(doors: Doors) -> None:
    topic = Topic(namespace="shop", name=next(names))
    session = session_of(doors, topic, record_type=ORDER)
    stream = Publishing(doors.agent.PublishRecord)
    stream.send(agent_pb.PublishRecordRequest(session_id=session))
    for number in (1, 2):
        stream.send(agent_pb.PublishRecordRequest(key=b"k", value=order(number)))
    wrong = RecordValue(fields={"note": Value(string_value="no id")})
    stream.send(agent_pb.PublishRecordRequest(value=wrong))
    stream.send(agent_pb.PublishRecordRequest(value=order(4)))
    answers = stream.finish()
    assert answers[-1].ack_sequence == 4
    [refused] = [each for each in answers if each.error]
    assert (refused.error_code, refused.ack_sequence) == (42, 3)
    assert refused.error == "record 3: the field id is missing"
    covered = [each.last_offset - each.base_offset + 1 for each in answers if not each.error]
    assert sum(covered) == 3
    found = records_of(doors, topic, 3)
    assert [bytes(each.value or b"") for each in found] == [
        order(number).SerializeToString() for number in (1, 2, 4)
    ]


def test_the_agents_keys_go_where_kafkas_do_and_an_answer_is_of_one_partition(
    doors: Doors,
) -> None:
    topic = Topic(namespace="shop", name=next(names))
    session = session_of(doors, topic, 4)
    stream = Publishing(doors.agent.PublishRecord)
    keys = [f"key-{number}".encode() for number in range(40)]
    stream.send(agent_pb.PublishRecordRequest(session_id=session))
    stream.send(*(agent_pb.PublishRecordRequest(key=key, value=order(1)) for key in keys))
    soon(lambda: len(publishers_of(doors, topic)) == 4)
    answers = stream.finish()
    assert publishers_of(doors, topic) == []
    assert {each.partition for each in answers} == {0, 1, 2, 3}
    sequences = [each.ack_sequence for each in answers]
    assert sequences == sorted({*sequences})
    assert sequences[-1] == 40
    assert sum(each.last_offset - each.base_offset + 1 for each in answers) == 40
    with doors.smq.connect() as client, client.producer() as producer:
        for record in records_of(doors, topic, 40):
            sent = producer.send(f"shop.{topic.name}", b"", key=record.key).result(10)
            assert sent.partition == record.partition


def publishers_of(doors: Doors, topic: Topic) -> list[Any]:
    return [*doors.broker.GetTopicPublishers(pb.GetTopicPublishersRequest(topic=topic)).publishers]


def test_a_session_ends_with_its_stream_or_when_it_is_closed(doors: Doors) -> None:
    topic = Topic(namespace="shop", name=next(names))
    session = session_of(doors, topic)
    first = agent_pb.PublishRecordRequest(session_id=session)
    stream = Publishing(doors.agent.PublishRecord)
    stream.send(first)
    assert stream.finish() == []
    again = Publishing(doors.agent.PublishRecord)
    again.send(first)
    [answer] = again.finish()
    assert answer.error_code == 100
    assert "there is no session" in answer.error
    other = agent_pb.ClosePublishSessionRequest(session_id=session_of(doors, topic))
    assert doors.agent.ClosePublishSession(other).error == ""
    assert "no session" in doors.agent.ClosePublishSession(other).error


def test_a_cancelled_stream_leaves_what_was_acknowledged(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    requests: SimpleQueue[Any] = SimpleQueue()
    call = doors.broker.PublishMessage(iter(requests.get, None))
    for request in (init(topic, partition), data(b"one")):
        requests.put(request)
    next(call)
    assert next(call).assigned_offset == 0
    call.cancel()
    requests.put(None)
    with pytest.raises(grpc.RpcError):
        next(call)
    assert len(records_of(doors, topic, 1)) == 1
    assert "bug" not in doors.smq.tail()


def test_a_record_with_too_many_headers_is_refused_at_both_doors(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    headers = [pb.Header(key="a")] * 1001
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"bad", headers=headers), data(b"one", headers=headers[1:]))
        answers = stream.finish()
    assert [each.error_code for each in answers] == [42, 0]
    assert answers[0].error == "it has 1001 headers, and may have 1000"
    records = Publishing(doors.agent.PublishRecord)
    records.send(agent_pb.PublishRecordRequest(session_id=session_of(doors, topic)))
    records.send(agent_pb.PublishRecordRequest(value=order(1), headers=headers))
    [answer] = records.finish()
    assert answer.error == "record 1: it has 1001 headers, and may have 1000"


def test_a_record_with_unknown_fields_is_refused_and_the_stream_goes_on(
    doors: Doors,
) -> None:
    topic = Topic(namespace="shop", name=next(names))
    for more in (dict[str, Any](), {"record_type": ORDER}):
        session = session_of(doors, topic, **more)
        stream = Publishing(doors.agent.PublishRecord)
        stream.send(agent_pb.PublishRecordRequest(session_id=session))
        for raw in (b"50000", b"\xff", order(1).SerializeToString() + b"07"):
            stream.send(b"\x1a" + bytes([len(raw)]) + raw)
        stream.send(b"\x1a\x00" * 2, b"\x1a\x00" + b"\xca\x3e\x00" * 2000)
        stream.send(agent_pb.PublishRecordRequest(value=order(6)))
        answers = stream.finish()
        whole = "its value is no RecordValue that all subscribers would read whole"
        assert [each.error for each in answers if each.error] == [
            *(f"record {each}: {whole}" for each in (1, 2, 3)),
            "record 4: a field that it may have once is there twice",
            "record 5: it has more than 2000 fields",
        ]
        assert answers[-1].ack_sequence == 6
    assert len(records_of(doors, topic, 2)) == 2


def test_a_large_message_is_cut_as_a_small_one_is_parsed(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    headers = [pb.Header(key="a", value=b"x"), pb.Header(key="b")]
    value = bytes(100_000)
    close = pb.DataMessage(ts_ns=TIME_NS + 2, ctrl=pb.ControlMessage(is_close=True), value=value)
    with publishing(doors, topic, partition) as stream:
        stream.send(
            data(value, key=b"k", ts_ns=TIME_NS, headers=headers),
            data(b"", key=value, ts_ns=TIME_NS + 1),
            pb.PublishMessageRequest(data=close),
            data(value, ts_ns=TIME_NS + 3, headers=headers * 1000),
        )
        answers = stream.finish()
    assert [(each.ack_ts_ns - TIME_NS, each.error_code) for each in answers] == [
        (0, 0), (1, 0), (2, 0), (3, 42),
    ]  # fmt: skip
    one, two = records_of(doors, topic, 2)
    assert (one.key, bytes(one.value or b"")) == (b"k", value)
    assert [*one.headers] == [("a", b"x"), ("b", None)]
    assert (two.key, bytes(two.value or b"?")) == (value, b"?")


def test_a_record_is_too_large_before_its_fields_are_looked_at(doors: Doors) -> None:
    topic = Topic(namespace="shop", name=next(names))
    session = session_of(doors, topic, record_type=ORDER)
    stream = Publishing(doors.agent.PublishRecord)
    stream.send(agent_pb.PublishRecordRequest(session_id=session))
    long = RecordValue(fields={"wrong": Value(string_value="x" * 2_000_000)})
    stream.send(agent_pb.PublishRecordRequest(value=long))
    stream.send(agent_pb.PublishRecordRequest(value=order(2)))
    answers = stream.finish()
    [answer] = [each for each in answers if each.error]
    assert (answer.error_code, answer.ack_sequence) == (10, 1)
    assert "larger than max.message.bytes" in answer.error
    assert answers[-1].ack_sequence == 2


def test_a_message_that_is_too_large_is_answered_by_its_nanosecond(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    with publishing(doors, topic, partition) as stream:
        stream.send(data(b"x" * 2_000_000, key=b"k", ts_ns=TIME_NS), data(b"x", ts_ns=TIME_NS + 1))
        answers = stream.finish()
    assert [(each.ack_ts_ns, each.error_code) for each in answers] == [
        (TIME_NS, 10),
        (TIME_NS + 1, 0),
    ]
    assert "larger than max.message.bytes of shop/" in answers[0].error


def test_a_publisher_with_a_long_name_is_refused_at_both_doors(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    first = init(topic, partition)
    first.init.publisher_name = "x" * 1025
    [answer] = doors.broker.PublishMessage(iter([first]))
    assert (answer.error, answer.should_close) == (
        "a publisher's name has at most 1024 characters",
        True,
    )
    asked = agent_pb.StartPublishSessionRequest(topic=topic, publisher_name="x" * 1025)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "at most 1024 characters"):
        doors.agent.StartPublishSession(asked)


def test_a_first_message_is_small(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    large = init(topic, partition)
    large.init.publisher_name = "x" * 300_000
    first = agent_pb.PublishRecordRequest(session_id=1, key=b"x" * 300_000)
    for method, request in (
        (doors.broker.PublishMessage, large),
        (doors.agent.PublishRecord, first),
    ):
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "at most 262144 bytes"):
            next(method(iter([request])))


def test_a_large_value_is_compared_with_its_type_too(doors: Doors) -> None:
    topic = Topic(namespace="shop", name=next(names))
    session = session_of(doors, topic, record_type=ORDER)
    stream = Publishing(doors.agent.PublishRecord)
    stream.send(agent_pb.PublishRecordRequest(session_id=session))
    for id_value in (Value(string_value="x"), Value(int64_value=1)):
        fields = {"id": id_value, "note": Value(string_value="x" * 100_000)}
        stream.send(agent_pb.PublishRecordRequest(value=RecordValue(fields=fields)))
    answers = stream.finish()
    [refused] = [each for each in answers if each.error]
    assert refused.error == "record 1: the field id is INT64, not STRING"
    assert answers[-1].ack_sequence == 2
