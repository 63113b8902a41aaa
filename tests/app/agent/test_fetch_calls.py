"""Reading without a subscription: what a FetchMessage gives, and what is said of a partition."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from threading import Timer
from typing import Any

import grpc
import pytest

from shm.timings import RpcTimings
from smq.agent.proto import mq_broker_pb2, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Partition, Topic
from smq.agent.read_records import WrittenAnswer
from smq.app.agent import fetch_calls
from smq.app.agent.fetch_calls import (
    COPIES,
    FetchedBytes,
    _wanted,
    _WrittenMessages,
)
from smq.app.agent.gate import CallGate, OpenGate
from smq.app.agent.methods import Context, service_of
from smq.client.kafka.topic_changes import delete_records
from smq.client.locate import cluster_at
from smq.shard.quotas import ClientQuotas
from tests.app.agent.doors import Doors, refused, stubs_of
from tests.app.agent.streams import soon
from tests.app.agent.test_gate import Access

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

names = (f"f{number}" for number in count())


def topic_with(doors: Doors, values: Sequence[bytes], **configs: str) -> tuple[str, Topic]:
    name = next(names)
    with doors.smq.connect() as client, client.producer() as producer:
        client.create_topic(name, 1, configs)
        for at, value in enumerate(values):
            producer.send(name, value, key=b"k", timestamp_ms=1_790_000_000_000 + at)
    return name, Topic(namespace="kafka", name=name)


def fetch(doors: Doors, topic: Topic, start: int, **rest: Any) -> pb.FetchMessageResponse:
    whole = Partition(ring_size=2520, range_start=0, range_stop=2520)
    request = pb.FetchMessageRequest(topic=topic, partition=whole, start_offset=start, **rest)
    return doors.broker.FetchMessage(request)  # type: ignore[no-any-return]


def test_messages_come_from_the_start_on_with_what_kafkas_clients_wrote(doors: Doors) -> None:
    _, topic = topic_with(doors, [b"a", b"b", b"c"])
    found = fetch(doors, topic, 1)
    assert [each.value for each in found.messages] == [b"b", b"c"]
    assert [each.offset for each in found.messages] == [1, 2]
    assert found.messages[0].ts_ns == 1_790_000_000_001 * 10**6
    assert found.messages[0].key == b"k"
    assert (found.log_start_offset, found.high_water_mark, found.next_offset) == (0, 3, 3)
    assert found.end_of_partition


def test_an_answer_has_at_most_so_many_messages_and_bytes(doors: Doors) -> None:
    _, topic = topic_with(doors, [b"x" * 1000] * 50)
    found = fetch(doors, topic, 0, max_messages=7)
    assert (len(found.messages), found.next_offset, found.end_of_partition) == (7, 7, False)
    found = fetch(doors, topic, 7, max_bytes=10_000)
    assert 0 < found.ByteSize() <= 10_000
    assert found.next_offset == 7 + len(found.messages)
    seen = found.next_offset
    while not found.end_of_partition:
        found = fetch(doors, topic, seen, max_messages=9)
        assert [each.offset for each in found.messages][:1] == [seen]
        seen = found.next_offset
    assert seen == 50


def test_the_same_start_gives_the_same_messages_again(doors: Doors) -> None:
    _, topic = topic_with(doors, [b"%d" % each for each in range(30)])
    for start in (20, 5, 5, 29, 0, 30):
        found = fetch(doors, topic, start, max_messages=3)
        assert [each.value for each in found.messages] == [
            b"%d" % each for each in range(start, min(30, start + 3))
        ]


def test_an_answer_below_four_mebibytes_is_the_default(doors: Doors) -> None:
    _, topic = topic_with(doors, [b"x" * 900_000] * 6)
    found = fetch(doors, topic, 0)
    assert 3 * 900_000 < found.ByteSize() < 4 * 1024 * 1024
    assert len(fetch(doors, topic, 0, max_bytes=50_000_000).messages) == 6


def test_records_with_headers_and_without_come_in_one_answer(doors: Doors) -> None:
    name, topic = topic_with(doors, [])
    with doors.smq.connect() as client, client.producer() as producer:
        for number in range(1200):
            headers = [("h", b"%d" % number)] if 100 <= number < 1000 or number % 7 == 0 else None
            producer.send(name, None if number % 5 == 0 else b"%d" % number, headers=headers)
    found = fetch(doors, topic, 3, max_messages=10_000)
    assert [each.offset for each in found.messages] == [*range(3, 1200)]
    for each in found.messages:
        has_headers = 100 <= each.offset < 1000 or each.offset % 7 == 0
        assert [header.value for header in each.headers] == [b"%d" % each.offset] * has_headers
        assert each.value == (b"" if each.offset % 5 == 0 else b"%d" % each.offset)


def test_times_beyond_the_nanoseconds_of_64_bits_are_the_last_of_these(doors: Doors) -> None:
    name, topic = topic_with(doors, [], **{"message.timestamp.after.max.ms": f"{2**63 - 1}"})
    with doors.smq.connect() as client, client.producer() as producer:
        for headers in (None, [("h", b"x")]):
            producer.send(name, b"v", timestamp_ms=2**62, headers=headers)
    found = fetch(doors, topic, 0)
    assert {each.ts_ns // 10**6 for each in found.messages} == {(2**63 - 1) // 10**6}
    assert len(found.messages) == 2


def test_an_offset_out_of_range_is_answered_with_the_range_and_where_to_go_on(doors: Doors) -> None:
    _, topic = topic_with(doors, [b"a"])
    found = fetch(doors, topic, 7)
    assert "out of range: the partition has 0 to 1" in found.error
    assert (found.error_code, found.next_offset) == (2, 1)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "offsets begin with 0"):
        fetch(doors, topic, -1)
    with refused(grpc.StatusCode.NOT_FOUND, "there is no topic"):
        fetch(doors, Topic(namespace="kafka", name="nowhere"), 0)


def test_a_gap_ends_an_answer_and_a_start_within_one_leads_behind_it(doors: Doors) -> None:
    name, topic = topic_with(doors, [b"a"])
    with (
        doors.smq.connect() as client,
        client.producer(transactional_id=name) as producer,
        producer.transaction(),
    ):
        producer.send(name, b"b")
    with doors.smq.connect() as client, client.producer() as producer:
        producer.send(name, b"c")
    found = fetch(doors, topic, 0)
    assert [each.value for each in found.messages] == [b"a", b"b"]
    assert (found.next_offset, found.end_of_partition) == (2, False)
    found = fetch(doors, topic, 2)
    assert [*found.messages] == []
    assert found.next_offset == 3
    assert [each.value for each in fetch(doors, topic, 3).messages] == [b"c"]


def test_a_long_poll_ends_with_the_first_record_or_with_its_time(doors: Doors) -> None:
    name, topic = topic_with(doors, [b"a"])
    assert [*fetch(doors, topic, 1, max_wait_ms=100).messages] == []
    with doors.smq.connect() as client, client.producer() as producer:
        timer = Timer(0.3, producer.send, (name, b"b"))
        timer.start()
        found = fetch(doors, topic, 1, max_wait_ms=15_000)
        timer.join()
    assert [each.value for each in found.messages] == [b"b"]


def test_a_long_poll_waits_for_min_bytes_or_its_time(doors: Doors) -> None:
    name, topic = topic_with(doors, [b"a"])
    with doors.smq.connect() as client, client.producer() as producer:
        first = Timer(0.1, producer.send, (name, b"b"))
        second = Timer(0.6, producer.send, (name, b"c" * 1000))
        for each in (first, second):
            each.start()
        found = fetch(doors, topic, 0, max_wait_ms=15_000, min_bytes=1000)
        for each in (first, second):
            each.join()
    assert [each.value[:1] for each in found.messages] == [b"a", b"b", b"c"]
    found = fetch(doors, topic, 0, max_wait_ms=100, min_bytes=100_000)
    assert len(found.messages) == 3
    assert len(fetch(doors, topic, 0, min_bytes=100_000).messages) == 3  # It does not wait.


def test_uncommitted_records_are_not_fetched_and_aborted_ones_never(doors: Doors) -> None:
    name, topic = topic_with(doors, [b"a"])
    with doors.smq.connect() as client, client.producer(transactional_id=name) as producer:
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(name, b"b")
            producer.flush()
            assert [each.value for each in fetch(doors, topic, 0).messages] == [b"a"]
            assert [*fetch(doors, topic, 1, max_wait_ms=100).messages] == []
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(name, b"c")
    soon(lambda: fetch(doors, topic, 1).next_offset == 3)  # Markers come after the decision.
    assert [*fetch(doors, topic, 1).messages] == []
    found = fetch(doors, topic, 3, max_wait_ms=15_000)
    assert [each.value for each in found.messages] == [b"c"]


def test_a_partition_is_described_as_it_is(doors: Doors) -> None:
    _, topic = topic_with(doors, [b"a", b"b", b"c"])
    whole = Partition(ring_size=2520, range_start=0, range_stop=2520)
    asked = pb.GetPartitionRangeInfoRequest(topic=topic, partition=whole)
    found = doors.broker.GetPartitionRangeInfo(asked)
    assert found.offset_range == pb.OffsetRangeInfo(latest_offset=2, high_water_mark=3)
    assert found.timestamp_range.earliest_timestamp_ns == 1_790_000_000_000 * 10**6
    assert found.timestamp_range.latest_timestamp_ns == 1_790_000_000_002 * 10**6
    assert (found.record_count, found.active_subscriptions, found.error) == (3, 0, "")


def test_a_sealed_partition_is_described_by_the_records_and_times_of_its_files(
    doors: Doors,
) -> None:
    """A marker is no record there, and the first record need not have the earliest time."""
    name, topic = topic_with(doors, [], **{"smq.seal.ms": "1", "smq.seal.bytes": "1"})
    with (
        doors.smq.connect() as client,
        client.producer(transactional_id=name) as producer,
        producer.transaction(),
    ):
        for at in (5, 3, 4):
            producer.send(name, b"x", timestamp_ms=1_790_000_000_000 + at)
    whole = Partition(ring_size=2520, range_start=0, range_stop=2520)
    asked = pb.GetPartitionRangeInfoRequest(topic=topic, partition=whole)
    soon(lambda: doors.broker.GetPartitionRangeInfo(asked).record_count == 3)
    found = doors.broker.GetPartitionRangeInfo(asked)
    assert found.offset_range == pb.OffsetRangeInfo(latest_offset=3, high_water_mark=4)
    assert found.timestamp_range.earliest_timestamp_ns == 1_790_000_000_003 * 10**6
    assert found.timestamp_range.latest_timestamp_ns == 1_790_000_000_005 * 10**6


def test_an_empty_partition_is_described_too(doors: Doors) -> None:
    _, topic = topic_with(doors, [])
    whole = Partition(ring_size=2520, range_start=0, range_stop=2520)
    asked = pb.GetPartitionRangeInfoRequest(topic=topic, partition=whole)
    found = doors.broker.GetPartitionRangeInfo(asked)
    assert found.offset_range == pb.OffsetRangeInfo()
    assert found.timestamp_range == pb.TimestampRangeInfo()


def test_all_answers_together_are_bounded_and_each_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_calls, "ALL_BYTES_MAX", COPIES * 100)
    fetched = FetchedBytes()
    wanted = _wanted(pb.FetchMessageRequest())
    one, other = _WrittenMessages(wanted, fetched), _WrittenMessages(wanted, fetched)
    one.add([b"x" * 60], 1)
    rooms = [one.has_room]
    other.add([b"x" * 60], 1)
    rooms += [one.has_room, _WrittenMessages(wanted, fetched).has_room]
    other.let_go()
    rooms.append(one.has_room)
    assert rooms == [True, False, True, True]
    assert fetched.total == COPIES * 60


def test_an_answer_that_is_sent_counts_no_more() -> None:
    held: list[int] = []

    async def talk() -> None:
        fetched = FetchedBytes()

        async def fetch(_: Any, call: Context) -> Any:
            found = _WrittenMessages(_wanted(pb.FetchMessageRequest()), fetched)
            call.when_done(found.let_go)
            found.add([], 1)
            found.add([pb.FetchMessageResponse(error="x" * 10**6).SerializeToString()], 1)
            held.append(fetched.total)
            rest = pb.FetchMessageResponse(next_offset=7)
            return WrittenAnswer(rest.SerializeToString(), *found.hand_out())

        service = mq_broker_pb2.DESCRIPTOR.services_by_name["SeaweedMessaging"]
        server = grpc.aio.server()
        handlers = {"FetchMessage": fetch}
        timings = RpcTimings.private()
        server.add_generic_rpc_handlers([service_of(service, handlers, timings, OpenGate())])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        found = await asyncio.to_thread(ask, port)
        assert (len(found.error), found.next_offset) == (10**6, 7)
        async with asyncio.timeout(20):
            while fetched.total:  # noqa: ASYNC110  (gRPC tells nobody)
                await asyncio.sleep(0.01)
        await server.stop(0)

    def ask(port: int) -> Any:
        service = mq_broker_pb2.DESCRIPTOR.services_by_name["SeaweedMessaging"]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            return stubs_of(service, channel).FetchMessage(pb.FetchMessageRequest())

    asyncio.run(talk())
    assert held[0] > 10**6


class StalledRelay:
    """Passes a connection on to a server, and takes nothing of its answers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> int:
        """The port to connect to."""
        self._server = await asyncio.start_server(self._passed, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1024)
        self._writers += [writer, far_writer]
        head = await far_reader.readexactly(9)  # Of its settings, for which a client waits.
        writer.write(head + await far_reader.readexactly(int.from_bytes(head[:3])))
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                far_writer.write(data)

    def close(self) -> None:
        self._server.close()
        for each in self._writers:
            each.close()


def plain_gate() -> CallGate:
    return CallGate("GRPC", Access(has_rules=False), ClientQuotas())


@pytest.mark.parametrize("gate", [OpenGate, plain_gate], ids=["as a stream", "unary"])
def test_an_answer_that_is_not_taken_counts_no_more_after_its_time(
    gate: Callable[[], CallGate],
) -> None:
    async def talk() -> None:
        fetched, begun = FetchedBytes(), asyncio.Event()

        async def fetch(_: Any, call: Context) -> Any:
            found = _WrittenMessages(_wanted(pb.FetchMessageRequest()), fetched)
            call.when_done(found.let_go)
            found.add([pb.FetchMessageResponse(error="x" * 10**7).SerializeToString()], 1)
            begun.set()
            call.give_up_after(0.2)
            return WrittenAnswer(*found.hand_out())

        service = mq_broker_pb2.DESCRIPTOR.services_by_name["SeaweedMessaging"]
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        handlers, timings = {"FetchMessage": fetch}, RpcTimings.private()
        server.add_generic_rpc_handlers([service_of(service, handlers, timings, gate())])
        relay = StalledRelay(server.add_insecure_port("127.0.0.1:0"))
        port = await relay.open()
        await server.start()
        asking = asyncio.create_task(asyncio.to_thread(ask, port))
        async with asyncio.timeout(30):
            await begun.wait()
            while fetched.total:  # noqa: ASYNC110  (gRPC tells nobody)
                await asyncio.sleep(0.01)
        assert not asking.done()
        relay.close()
        await server.stop(0)
        await asking

    def ask(port: int) -> None:
        service = mq_broker_pb2.DESCRIPTOR.services_by_name["SeaweedMessaging"]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, suppress(grpc.RpcError):
            stubs_of(service, channel).FetchMessage(pb.FetchMessageRequest(), timeout=40)

    asyncio.run(talk())


def test_an_answer_tells_the_log_start_that_deletions_have_raised(doors: Doors) -> None:
    name, topic = topic_with(doors, [b"a", b"b", b"c"])
    with cluster_at(doors.smq.data_dir) as cluster:
        delete_records(cluster, name, 2)
    below, there = fetch(doors, topic, 0), fetch(doors, topic, 2)
    assert (below.log_start_offset, below.next_offset, below.high_water_mark) == (2, 2, 3)
    assert (there.log_start_offset, there.next_offset, there.high_water_mark) == (2, 3, 3)


def test_the_high_water_mark_of_a_long_poll_is_that_of_its_end(doors: Doors) -> None:
    name, topic = topic_with(doors, [b"a"])
    with doors.smq.connect() as client, client.producer() as producer:
        later = Timer(0.4, producer.send, (name, b"b"))
        later.start()
        answer = fetch(doors, topic, 1, max_wait_ms=15_000)
        later.join()
    assert answer.high_water_mark >= answer.next_offset == 2
