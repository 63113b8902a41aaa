"""SubscribeMessage of a real broker: where it begins, what comes again, what is committed."""

import asyncio
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import OffsetType, Partition, Topic
from smq.agent.read_records import ReadRecord
from smq.app.agent.refusals import CallRefused
from smq.app.agent.subscribe_calls import StreamAnswers, SubscribeCalls
from smq.app.process.status import attach_timings
from smq.client.kafka.topic_changes import alter_topic
from smq.client.locate import cluster_at
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, Doors, opened, refused
from tests.app.agent.gone_client import GoneClient, OneSubscription
from tests.app.agent.message_streams import (
    FIRST_MS,
    ack,
    committed,
    fill,
    filled,
    init,
    subscribed,
    values,
)
from tests.app.agent.streams import kafka_name, soon, topic_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

T = OffsetType
EXPLICIT = (("smq-ack", "explicit"),)


def first_of(doors: Doors, *requests: Any) -> Any:
    stream = subscribed(doors, *requests)
    try:
        return stream.read()
    finally:
        stream.cancel()


def test_records_come_in_order_with_what_they_have(doors: Doors) -> None:
    topic, partition = filled(doors, 3)
    stream = subscribed(doors, init(topic, partition))
    first, *rest = stream.read_many(3)
    assert values([first, *rest]) == [b"0", b"1", b"2"]
    assert (first.data.key, first.data.ts_ns) == (b"k", FIRST_MS * 10**6)
    assert [each.data.offset for each in rest] == [1, 2]
    fill(doors, topic, range(3, 4))
    assert values([stream.read()]) == [b"3"]
    [end] = stream.finish()
    assert end.ctrl.is_end_of_stream
    assert not end.ctrl.is_end_of_topic


@pytest.mark.parametrize(
    ("kind", "place", "first"),
    [
        (T.RESUME_OR_EARLIEST, {}, b"0"),
        (T.RESET_TO_EARLIEST, {}, b"0"),
        (T.EXACT_OFFSET, {"start_offset": 3}, b"3"),
        (T.RESET_TO_OFFSET, {"start_offset": 4}, b"4"),
        (T.EXACT_TS_NS, {"start_ts_ns": (FIRST_MS + 1) * 10**6 + 1}, b"2"),
    ],
    ids=["earliest", "reset to earliest", "exact offset", "reset to offset", "exact time"],
)
def test_each_offset_type_begins_at_its_place(
    doors: Doors, kind: int, place: dict[str, int], first: bytes
) -> None:
    topic, partition = filled(doors, 5)
    assert values([first_of(doors, init(topic, partition, kind, **place))]) == [first]


def test_the_latest_place_is_behind_all_records(doors: Doors) -> None:
    topic, partition = filled(doors, 5)
    asked = pb.GetTopicSubscribersRequest(topic=topic)
    for kind in (T.RESET_TO_LATEST, T.RESUME_OR_LATEST):
        stream = subscribed(doors, init(topic, partition, kind, consumer_group=f"late-{kind}"))
        soon(lambda: len(doors.broker.GetTopicSubscribers(asked).subscribers) == 1)
        fill(doors, topic, range(9, 10))
        assert values([stream.read()]) == [b"9"]
        stream.finish()


def test_acknowledged_records_are_committed_and_others_come_again(doors: Doors) -> None:
    topic, partition = filled(doors, 4)
    stream = subscribed(doors, init(topic, partition))
    zero, one, two, _ = stream.read_many(4)
    stream.send(ack(zero), ack(two))
    soon(lambda: committed(doors, "g", topic) == 1)
    stream.send(ack(one))
    stream.finish()
    assert committed(doors, "g", topic) == 3
    assert values([first_of(doors, init(topic, partition))]) == [b"3"]


def test_records_without_a_key_are_acknowledged_when_they_are_written(doors: Doors) -> None:
    topic, partition = filled(doors, 4, key=None)
    stream = subscribed(doors, init(topic, partition))
    stream.read_many(4)
    stream.finish()
    assert committed(doors, "g", topic) == 4


def test_with_explicit_acknowledgements_those_without_a_key_are_to_be_acknowledged_too(
    doors: Doors,
) -> None:
    topic, partition = filled(doors, 2, key=None)
    stream = subscribed(doors, init(topic, partition), metadata=EXPLICIT)
    stream.read_many(2)
    stream.finish()
    assert committed(doors, "g", topic) is None
    again = subscribed(doors, init(topic, partition), metadata=EXPLICIT)
    for record in again.read_many(2):
        again.send(ack(record))
    again.finish()
    assert committed(doors, "g", topic) == 2


def test_no_more_than_the_window_are_unacknowledged(doors: Doors) -> None:
    topic, partition = filled(doors, 6)
    stream = subscribed(doors, init(topic, partition, sliding_window_size=2))
    zero, one = stream.read_many(2)
    stream.send(ack(zero))
    two = stream.read()
    assert values([two]) == [b"2"]
    stream.send(ack(one), ack(two))
    assert values(stream.read_many(2)) == [b"3", b"4"]
    [end] = stream.finish()
    assert end.ctrl.is_end_of_stream


def test_a_refused_record_comes_again_and_is_a_dead_letter_after_five_deliveries(
    doors: Doors,
) -> None:
    topic, partition = filled(doors, 2)
    stream = subscribed(doors, init(topic, partition))
    zero, one = stream.read_many(2)
    stream.send(ack(one))
    for _ in range(4):
        stream.send(ack(zero, nack=True))
        assert values([stream.read()]) == [b"0"]
    stream.send(ack(zero, nack=True))
    name = f"{kafka_name(topic)}.g.dlq"
    with doors.smq.connect() as client:
        soon(lambda: name in client.topics())
        with client.consumer(name, start="earliest") as consumer:
            letter = next(iter(consumer))
            said = {key: (value or b"").decode() for key, value in letter.headers}
            assert (bytes(letter.value or b""), letter.key) == (b"0", b"k")
    assert said == {
        "__dlq.errors.topic": kafka_name(topic),
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "0",
        "__dlq.errors.group": "g",
        "__dlq.errors.delivery.count": "5",
        "__dlq.errors.message": "its subscriber refused it",
    }
    soon(lambda: committed(doors, "g", topic) == 2)
    stream.finish()


def test_a_record_that_is_not_acknowledged_in_time_comes_again(doors: Doors) -> None:
    topic, partition = filled(doors, 1)
    with cluster_at(doors.smq.data_dir) as cluster:
        alter_topic(cluster, kafka_name(topic), {"smq.grpc.ack.timeout.ms": "200"}, ())
    stream = subscribed(doors, init(topic, partition))
    assert values(stream.read_many(3)) == [b"0"] * 3
    stream.send(ack(stream.read()))
    stream.finish()
    assert committed(doors, "g", topic) == 1


def test_an_ack_may_come_on_another_stream_of_the_instance(doors: Doors) -> None:
    topic, partition = filled(doors, 1)
    other, range_of_other = filled(doors, 0)
    stream = subscribed(doors, init(topic, partition, consumer_id="both"))
    also = subscribed(doors, init(other, range_of_other, consumer_id="both"))
    asked = pb.GetTopicSubscribersRequest(topic=other)
    soon(lambda: len(doors.broker.GetTopicSubscribers(asked).subscribers) == 1)
    also.send(ack(stream.read()))
    soon(lambda: committed(doors, "g", topic) == 1)
    stream.finish()
    also.finish()


def test_unknown_acks_are_counted_and_end_nothing(doors: Doors) -> None:
    topic, partition = filled(doors, 2)
    timings = attach_timings(doors.smq.status())
    assert timings is not None
    counted, before = timings.rpcs().unknown_acks, int(timings.rpcs().unknown_acks[0])
    stream = subscribed(doors, init(topic, partition))
    record = stream.read()
    unknown = pb.SubscribeMessageRequest.AckMessage(ts_ns=5, key=b"?")
    beyond = pb.SubscribeMessageRequest.AckMessage(offset=10**12)
    stream.send(*(pb.SubscribeMessageRequest(ack=each) for each in (unknown, beyond)))
    stream.send(ack(record), ack(record))
    assert values([stream.read()]) == [b"1"]
    soon(lambda: committed(doors, "g", topic) == 1)
    stream.finish()
    assert counted[0] == before + 3


def test_a_reset_overwrites_the_commit_and_an_exact_place_leaves_it(doors: Doors) -> None:
    topic, partition = filled(doors, 5)
    stream = subscribed(doors, init(topic, partition))
    stream.send(*map(ack, stream.read_many(5)))
    stream.finish()
    assert committed(doors, "g", topic) == 5
    first_of(doors, init(topic, partition, T.EXACT_OFFSET, start_offset=1))
    assert committed(doors, "g", topic) == 5
    first_of(doors, init(topic, partition, T.RESET_TO_OFFSET, start_offset=2))
    soon(lambda: committed(doors, "g", topic) == 2)


def test_an_offset_out_of_range_is_refused_or_moved_and_said(doors: Doors) -> None:
    topic, partition = filled(doors, 2)
    exact = first_of(doors, init(topic, partition, T.EXACT_OFFSET, start_offset=9))
    assert "out of range: the partition has 0 to 2" in exact.ctrl.error
    stream = subscribed(doors, init(topic, partition, T.RESET_TO_OFFSET, start_offset=9))
    assert "it begins at 2" in stream.read().ctrl.error
    fill(doors, topic, range(2, 3))
    assert values([stream.read()]) == [b"2"]
    stream.finish()


def test_a_seek_goes_on_elsewhere_and_says_when_it_is_done(doors: Doors) -> None:
    topic, partition = filled(doors, 5)
    stream = subscribed(doors, init(topic, partition))
    stream.read_many(5)

    def seek(offset: int, kind: int = T.EXACT_OFFSET) -> Any:
        said = pb.SubscribeMessageRequest.SeekMessage(offset=offset, offset_type=kind)  # type: ignore[arg-type]
        return pb.SubscribeMessageRequest(seek=said)

    stream.send(seek(3))
    answers = stream.read_many(3)
    assert values(answers) == [b"3", b"4"]
    [done] = [each for each in answers if each.WhichOneof("message") == "ctrl"]
    assert done.ctrl == pb.SubscribeMessageResponse.SubscribeCtrlMessage()
    stream.send(seek(77))
    assert "out of range" in stream.read().ctrl.error
    stream.finish()


SEEKS = (
    (T.EXACT_TS_NS, (FIRST_MS + 3) * 10**6, 3),
    (T.EXACT_TS_NS, (FIRST_MS + 1) * 10**6 + 1, 2),
    (T.RESUME_OR_EARLIEST, 2, 2),  # As SeaweedMQ: who gives no type means an offset.
    (T.RESUME_OR_LATEST, 1, 1),
    (T.RESET_TO_EARLIEST, 9, 0),
    (T.RESET_TO_OFFSET, 4, 4),
)
"""Each offset type of a seek, its number, and the first of five records behind it."""


def test_a_seek_has_each_offset_type_and_is_by_time_too(doors: Doors) -> None:
    topic, partition = filled(doors, 5)
    stream = subscribed(doors, init(topic, partition, consumer_group="seeker"))
    stream.read_many(5)
    message = pb.SubscribeMessageRequest.SeekMessage
    for kind, number, first in SEEKS:
        said = message(offset=number, offset_type=kind)
        stream.send(pb.SubscribeMessageRequest(seek=said))
        done, *answers = stream.read_many(1 + 5 - first)
        assert done.ctrl == pb.SubscribeMessageResponse.SubscribeCtrlMessage()
        assert values(answers) == [b"%d" % each for each in range(first, 5)]
    stream.send(pb.SubscribeMessageRequest(seek=message(offset_type=T.RESET_TO_LATEST)))
    stream.read()
    soon(lambda: committed(doors, "seeker", topic) == 5)
    stream.send(pb.SubscribeMessageRequest(seek=message(offset=77)), init(topic, partition))
    for words in ("out of range: the partition has 0 to 5", "a stream has one init"):
        assert words in stream.read().ctrl.error
    stream.finish()


def test_a_record_that_a_filter_holds_back_counts_as_acknowledged(doors: Doors) -> None:
    topic, partition = filled(doors, 10)
    wanted = "_offset = 2 or _value = '7'"
    stream = subscribed(doors, init(topic, partition, consumer_group="filters", filter=wanted))
    first, second = stream.read_many(2)
    assert values([first, second]) == [b"2", b"7"]
    acks = pb.SubscribeMessageRequest.AckMessage
    for each in (first, second):
        ack = acks(ts_ns=each.data.ts_ns, key=each.data.key)
        stream.send(pb.SubscribeMessageRequest(ack=ack))
    soon(lambda: committed(doors, "filters", topic) == 10)
    stream.finish()


def test_a_filter_that_wants_nothing_behind_an_exact_place_moves_the_commit(doors: Doors) -> None:
    topic, partition = filled(doors, 10)
    exact = {"kind": T.EXACT_OFFSET, "start_offset": 1}
    message = init(topic, partition, consumer_group="none", filter="_key = 'none'", **exact)
    stream = subscribed(doors, message)
    soon(lambda: committed(doors, "none", topic) == 10)
    stream.finish()


class NarrowStream:
    """A call that takes one message at a time, as gRPC's do."""

    def __init__(self) -> None:
        self.written = 0
        self._is_writing = False

    async def write(self, _: pb.SubscribeMessageResponse) -> None:
        assert not self._is_writing
        self._is_writing = True
        await asyncio.sleep(0)
        self._is_writing = False
        self.written += 1


def test_a_note_waits_until_a_record_is_written() -> None:
    async def talk() -> None:
        call: Any = NarrowStream()
        answers = StreamAnswers(call)
        await asyncio.gather(answers.deliver(ReadRecord(), 1), answers.say("done"))
        assert call.written == 2

    asyncio.run(talk())


def test_a_client_that_is_gone_before_its_note_is_read_leaves_no_subscription_behind() -> None:
    subscriptions, first = OneSubscription(), init(Topic(namespace="shop", name="t"), Partition())
    calls = SubscribeCalls(subscriptions)  # type: ignore[arg-type]
    with pytest.raises(CallRefused, match="the client has gone"):
        asyncio.run(calls._subscribe(None, GoneClient(first)))  # type: ignore[arg-type]
    assert subscriptions.open == []


def test_a_deleted_topic_ends_the_stream(doors: Doors) -> None:
    topic, partition = filled(doors, 1)
    stream = subscribed(doors, init(topic, partition))
    stream.read()
    with doors.smq.connect() as client:
        client.delete_topic(kafka_name(topic))
    end = stream.read()
    assert end.ctrl.is_end_of_stream
    assert end.ctrl.is_end_of_topic
    assert stream.finish() == []


def test_a_group_of_kafkas_consumers_is_no_group_of_ours(doors: Doors) -> None:
    topic, partition = filled(doors, 1)
    with (
        doors.smq.connect() as client,
        client.consumer(kafka_name(topic), group="mixed", start="earliest") as consumer,
    ):
        consumer.poll(10)
        for name in ("mixed", "kafka-cg-mixed"):
            stream = subscribed(doors, init(topic, partition, consumer_group=name))
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "consumers of Kafka's protocol"):
                stream.read()
            stream.cancel()


def test_a_kafka_consumer_goes_on_where_a_subscriber_has_stopped(doors: Doors) -> None:
    topic, partition = filled(doors, 3)
    stream = subscribed(doors, init(topic, partition, consumer_group="handover"))
    stream.send(*map(ack, stream.read_many(2)))
    soon(lambda: committed(doors, "handover", topic) == 2)
    stream.finish()
    with (
        doors.smq.connect() as client,
        client.consumer(kafka_name(topic), group="handover", start="earliest") as consumer,
    ):
        assert bytes(next(iter(consumer)).value or b"") == b"2"


def test_bad_beginnings_end_the_stream_with_the_reason(doors: Doors) -> None:
    topic, partition = filled(doors, 1)
    nowhere = Topic(namespace="shop", name="nowhere")
    early = pb.SubscribeMessageRequest(ack=pb.SubscribeMessageRequest.AckMessage())
    for first, words in (
        (early, "first message of a stream is its init"),
        (init(nowhere, partition), "there is no topic shop/nowhere"),
        (init(topic, Partition(ring_size=1)), "its ring has 1 slots"),
        (init(topic, partition, 7), "no offset type 7"),
        (init(topic, partition, filter="x ="), "filter: at character 4"),
        (init(topic, partition, T.EXACT_OFFSET, start_offset=-1), "offsets begin with 0"),
    ):
        stream = subscribed(doors, first)
        [answer] = stream.finish()
        assert words in answer.ctrl.error


def test_a_client_that_reads_nothing_holds_no_other_up(doors: Doors) -> None:
    topic, partition = filled(doors, 3000, key=None)
    fill(doors, topic, range(3000, 3001), key=None)
    silent = subscribed(doors, init(topic, partition, consumer_group="silent"))
    other = subscribed(doors, init(topic, partition, consumer_group="quick"))
    assert len(values(other.read_many(3001))) == 3001
    silent.cancel()
    other.finish()


def test_a_broker_that_stops_says_so_and_keeps_acknowledgements(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with SmqBroker(tmp_path_factory.mktemp("stop"), SETTINGS) as broker:
        with opened(broker) as doors:
            topic, partition = filled(doors, 2)
            stream = subscribed(doors, init(topic, partition))
            zero, _ = stream.read_many(2)
            stream.send(ack(zero))
            soon(lambda: committed(doors, "g", topic) == 1)
            broker.stop()
            assert stream.read().ctrl.is_end_of_stream
        assert "bug" not in broker.tail()


@pytest.mark.parametrize("has_small_topic", [False, True], ids=["new topic", "small topic"])
def test_a_large_dead_letter_never_holds_its_group_up(
    doors: Doors, *, has_small_topic: bool
) -> None:
    topic, [partition] = topic_of(doors)
    name, group = kafka_name(topic), f"large-{has_small_topic}"
    letters, size_bytes = f"{name}.{group}.dlq", 1_048_400  # Near the default max.message.bytes.
    with doors.smq.connect() as client:
        if has_small_topic:
            client.create_topic(letters, 1)
            size_bytes = 2_999_000
            with cluster_at(doors.smq.data_dir) as cluster:
                alter_topic(cluster, name, {"max.message.bytes": "3000000"}, ())
        with client.producer() as producer:
            for key, value in ((b"k", b"x" * size_bytes), (b"next", b"")):
                producer.send(name, value, key=key)
    stream = subscribed(doors, init(topic, partition, consumer_group=group))
    large, following = stream.read_many(2)
    stream.send(ack(following))
    for _ in range(4):
        stream.send(ack(large, nack=True))
        stream.read()
    stream.send(ack(large, nack=True))
    soon(lambda: committed(doors, group, topic) == 2)
    stream.finish()
    with doors.smq.connect() as client, client.consumer(letters, start="earliest") as consumer:
        letter = next(iter(consumer))
        said = dict(letter.headers)
        assert letter.key == b"k"
        assert said["__dlq.errors.offset"] == b"0"
        if has_small_topic:
            assert letter.value is None
            assert said["__dlq.errors.left.out"] == b"value"
        else:
            assert len(letter.value or b"") == size_bytes
            assert "__dlq.errors.left.out" not in said


def test_a_dead_letter_without_a_key_goes_into_a_compacted_topic(doors: Doors) -> None:
    topic, [partition] = topic_of(doors)
    name = kafka_name(topic)
    letters = f"{name}.keyless.dlq"
    with doors.smq.connect() as client:
        client.create_topic(letters, 1, configs={"cleanup.policy": "compact"})
        with client.producer() as producer:
            producer.send(name, b"x")
    first = init(topic, partition, consumer_group="keyless")
    stream = subscribed(doors, first, metadata=EXPLICIT)
    for _ in range(5):
        stream.send(ack(stream.read(), nack=True))
    soon(lambda: committed(doors, "keyless", topic) == 1)
    stream.finish()
    with doors.smq.connect() as client, client.consumer(letters, start="earliest") as consumer:
        letter = next(iter(consumer))
        assert (letter.key, bytes(letter.value or b"")) == (f"{name}-0-0".encode(), b"x")
