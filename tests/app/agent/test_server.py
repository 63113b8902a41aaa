"""The agent's process: its ports are kept while it is down, and its records survive it."""

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Topic
from smq.app.agent.gate import RpcContext
from smq.app.agent.server import OPTIONS, STOP_WAIT_S, STREAMS_PER_CONNECTION_MAX
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, opened, refused
from tests.app.agent.message_streams import init as message_init
from tests.app.agent.streams import OpenStream, kafka_name, soon, topic_of
from tests.app.agent.test_record_calls import EXPLICIT, committed, fill, init as record_init

pytestmark = pytest.mark.timeout(120)
NUMBERED = 1000  # As many as a publisher may send again.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PINGS = {"grpc.keepalive_time_ms", "grpc.http2.min_ping_interval_without_data_ms"}
PENDING = "grpc.server_max_unrequested_time_in_server"


def test_the_limits_of_a_port_are_those_of_the_docs() -> None:
    assert dict(OPTIONS) == {
        "grpc.so_reuseport": 1,
        "grpc.max_receive_message_length": 16 * 1024 * 1024,
        "grpc.max_send_message_length": 100 * 1024 * 1024,
        "grpc.max_concurrent_streams": 1000,
        "grpc.server_max_unrequested_time_in_server": 600,
        "grpc.max_connection_idle_ms": 600_000,
        "grpc.server_handshake_timeout_ms": 10_000,
        "grpc.max_metadata_size": 16 * 1024,
        "grpc.absolute_max_metadata_size": 16 * 1024,
        "grpc.keepalive_time_ms": 60_000,
        "grpc.keepalive_timeout_ms": 20_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.min_ping_interval_without_data_ms": 10_000,
    }


class FrameCounter:
    """Passes a connection on to a server, and counts the pings of both sides."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.pings = {"client": 0, "server": 0}
        self._passing: list[asyncio.Future[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Of one connection."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        preface = await reader.readexactly(len(PREFACE))
        assert preface == PREFACE
        far_writer.write(preface)
        ways = ("client", reader, far_writer), ("server", far_reader, writer)
        self._passing += [asyncio.create_task(self._pass(*each)) for each in ways]
        self._writers += [far_writer, writer]

    async def close(self) -> None:
        """Of all connections."""
        for each in self._writers:
            each.close()
        await asyncio.wait(self._passing)
        for each in self._writers:
            with suppress(ConnectionError):
                await each.wait_closed()

    async def _pass(
        self, side: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(9)  # Length, type, flags, stream.
                writer.write(head + await reader.readexactly(int.from_bytes(head[:3])))
                self.pings[side] += head[3:5] == b"\x06\x00"
                await writer.drain()
        writer.close()


async def idle_streams_after_pings(count: int, side: str) -> int:
    """How many streams of a connection are there after some pings of one side: the other one hears
    them, and has no need to send its own."""
    ends = asyncio.Event()

    async def watch(_: bytes, context: RpcContext) -> None:
        await context.write(b"begun")
        await ends.wait()
        await context.write(b"ended")

    sooner = [(name, value // 50 if name in PINGS else value) for name, value in OPTIONS]
    server = grpc.aio.server(options=sooner)
    handler = grpc.unary_stream_rpc_method_handler(watch)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", {"m": handler})])
    counter = FrameCounter(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    between = await asyncio.start_server(counter.passed, "127.0.0.1", 0)
    address = f"127.0.0.1:{between.sockets[0].getsockname()[1]}"
    options = [("grpc.http2.max_pings_without_data", 0)]
    if side == "client":
        options.append(("grpc.keepalive_time_ms", 400))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        calls = [channel.unary_stream("/s/m")(b"", timeout=100) for _ in range(count)]
        assert {await each.read() for each in calls} == {b"begun"}
        extra = channel.unary_stream("/s/m")(b"", timeout=100)
        waiting = asyncio.create_task(extra.read())
        before = counter.pings[side]
        async with asyncio.timeout(60):
            while counter.pings[side] < before + 5:  # noqa: ASYNC110  (frames tell nobody)
                await asyncio.sleep(0.05)
        assert not waiting.done()
        ends.set()
        ended = [await each.read() for each in calls]
        assert await waiting == b"begun"
    between.close()
    await counter.close()
    await server.stop(None)
    return ended.count(b"ended")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_thousand_idle_streams_outlive_pings_and_one_more_waits(side: str) -> None:
    left = asyncio.run(idle_streams_after_pings(STREAMS_PER_CONNECTION_MAX, side))
    assert left == STREAMS_PER_CONNECTION_MAX == 1000


async def calls_of_a_busy_process(options: Sequence[tuple[str, int]]) -> set[grpc.StatusCode]:
    """The statuses of calls that come while another one has the loop."""
    began, goes_on = Event(), Event()

    async def answer(request: bytes, _: object) -> bytes:
        if request == b"long":
            began.set()
            goes_on.wait(60)
        return request

    server = grpc.aio.server(options=options)
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("s", {"m": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    def call() -> set[grpc.StatusCode]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = channel.unary_unary("/s/m")
            long = method.future(b"long", timeout=60)
            began.wait(60)
            others = [method.future(b"x", timeout=60) for _ in range(5)]
            goes_on.set()
            long.result()
            return {each.code() for each in others}

    try:
        return await asyncio.to_thread(call)
    finally:
        await server.stop(None)


def test_a_call_waits_as_long_as_its_caller_for_a_busy_process() -> None:
    impatient = [(name, 0 if name == PENDING else value) for name, value in OPTIONS]
    soon(lambda: grpc.StatusCode.CANCELLED in asyncio.run(calls_of_a_busy_process(impatient)))
    assert asyncio.run(calls_of_a_busy_process(OPTIONS)) == {grpc.StatusCode.OK}


@pytest.mark.slow
def test_a_killed_agent_comes_back_at_its_port_with_what_it_had_acknowledged(
    tmp_path: Path,
) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        topic, [partition] = topic_of(doors)
        said = pb.PublishMessageRequest.InitMessage(topic=topic, partition=partition)
        init = pb.PublishMessageRequest(init=said)
        record = pb.PublishMessageRequest(data=pb.DataMessage(value=b"x"))
        stream = OpenStream(doors.broker.PublishMessage, init, record)
        stream.read()
        assert stream.read().assigned_offset == 0
        before = broker.status().grpc
        broker.kill("agent")
        host, port = before.split(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        soon(lambda: broker.status().ready)
        assert broker.status().grpc == before
        with opened(broker) as again:
            asked = pb.FetchMessageRequest(topic=topic, partition=partition)
            found = again.broker.FetchMessage(asked, wait_for_ready=True)
            assert [each.value for each in found.messages] == [b"x"]


@pytest.mark.slow
def test_records_in_flight_of_a_killed_agent_come_again_and_then_once(tmp_path: Path) -> None:
    """Under another agent their sequences are new ones; those that it knows it appends once."""
    with SmqBroker(tmp_path, SETTINGS) as broker:
        with opened(broker) as doors:
            topic, [partition] = topic_of(doors)
            said = pb.PublishMessageRequest.InitMessage(
                topic=topic, partition=partition, publisher_name="p", ack_interval=1
            )
            numbered = [
                pb.PublishMessageRequest(data=pb.DataMessage(value=b"%d" % each, sequence=each))
                for each in range(NUMBERED)
            ]
            requests = [pb.PublishMessageRequest(init=said), *numbered]
            stream = OpenStream(doors.broker.PublishMessage, *requests)
            stream.read()
            offsets = {each.sequence: each.assigned_offset for each in stream.read_many(50)}
            broker.kill("agent")
            with suppress(grpc.RpcError, StopIteration):
                while answer := stream.read():
                    offsets[answer.sequence] = answer.assigned_offset
        soon(lambda: broker.status().ready)
        answered = []
        with opened(broker) as doors:
            for _ in range(2):
                stream = OpenStream(doors.broker.PublishMessage, *requests, wait_for_ready=True)
                stream.read()
                answers = stream.read_many(NUMBERED)
                answered.append({each.sequence: each.assigned_offset for each in answers})
                stream.finish()
        assert answered[0] == answered[1]
        name = kafka_name(topic)
        with broker.connect() as client, client.consumer(name, start="earliest") as consumer:
            found = consumer.read_until(consumer.find("latest"))
            values = {each.offset: bytes(each.value or b"") for each in found}
        for sequence, offset in (*offsets.items(), *answered[0].items()):
            assert values[offset] == b"%d" % sequence
        assert len(values) <= 2 * NUMBERED


@pytest.mark.slow
def test_a_message_above_the_limit_and_large_metadata_are_refused_alone(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        exists = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x" * (17 << 20)))
        with pytest.raises(grpc.RpcError) as raised:
            doors.broker.TopicExists(exists)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        small = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x"))
        with pytest.raises(grpc.RpcError) as raised:
            doors.broker.TopicExists(small, metadata=(("large", "x" * (1 << 20)),))
        assert raised.value.code() is not grpc.StatusCode.OK
        assert not doors.broker.TopicExists(small).exists


@pytest.mark.slow
def test_a_stop_ends_what_is_open_at_both_doors_and_waits_for_no_subscriber(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        topic, ranges = topic_of(doors, 3)
        with broker.connect() as client, client.producer() as producer:
            for partition in range(3):
                producer.send(kafka_name(topic), b"x", key=b"k", partition=partition)
        records = [
            OpenStream(doors.agent.SubscribeRecord, record_init(topic, group))
            for group in ("one", "two")
        ]
        messages = [
            OpenStream(doors.broker.SubscribeMessage, message_init(topic, each, consumer_group="g"))
            for each in ranges
        ]
        said = pb.SubscriberToSubCoordinatorRequest.InitMessage(
            consumer_group="told", consumer_group_instance_id="i", topic=topic
        )
        init = pb.SubscriberToSubCoordinatorRequest(init=said)
        coordinated = OpenStream(doors.broker.SubscriberToSubCoordinator, init)
        for stream, count in (*((each, 3) for each in records), *((each, 1) for each in messages)):
            stream.read_many(count)
        coordinated.read()
        began = time.monotonic()
        broker.stop()
        took_s = time.monotonic() - began
        ends = [each.is_end_of_stream for stream in records for each in stream.finish()]
        ends += [each.ctrl.is_end_of_stream for stream in messages for each in stream.finish()]
        assert ends == [True] * 5
        with refused(grpc.StatusCode.UNAVAILABLE, "the broker stops"):
            coordinated.read()
        assert took_s < STOP_WAIT_S


@pytest.mark.slow
def test_acknowledgements_before_a_stop_are_committed(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker:
        with opened(broker) as doors:
            topic, _ = topic_of(doors)
            fill(doors, topic, 0, range(5))
            stream = OpenStream(doors.agent.SubscribeRecord, record_init(topic), metadata=EXPLICIT)
            for each in stream.read_many(5):
                ack = agent_pb.SubscribeRecordRequest(offset=each.offset, ack_partition=0)
                stream.send(ack)
            stream.send(record_init(topic))  # Its answer comes once all before it are read.
            assert "a stream has one init" in stream.read().error
            broker.stop()
            assert [each.is_end_of_stream for each in stream.finish()] == [True]
        broker.restart()
        with opened(broker) as doors:
            assert committed(doors, topic) == {0: 5}


@pytest.mark.slow
def test_two_brokers_do_not_share_a_port(tmp_path: Path) -> None:
    with SmqBroker(tmp_path / "one", SETTINGS) as broker:
        port = broker.status().grpc.rpartition(":")[2]
        with pytest.raises(RuntimeError, match=r"in use by process .*--grpc-port"):
            SmqBroker(tmp_path / "two", {"grpc.port": port})
