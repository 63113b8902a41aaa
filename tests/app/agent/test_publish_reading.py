"""What publishers send is looked at before it costs anything."""

import asyncio
import gc
import threading
import weakref
from typing import Any

import grpc
import pytest

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import RecordValue
from smq.app.agent import appending, publish_reading
from smq.app.agent.appending import PublishedRecord, PublishStream
from smq.app.agent.methods import Received
from smq.app.agent.publish_reading import CHECKED_AT_ONCE_BYTES, RecordReading
from smq.model.partitioner import partition_of_key


def test_a_long_key_is_hashed_in_a_thread_and_goes_where_kafkas_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, threads = b"k" * 100_000, list[threading.Thread]()

    def hashed(key: bytes, count: int) -> int:
        threads.append(threading.current_thread())
        return partition_of_key(key, count)

    monkeypatch.setattr(publish_reading, "partition_of_key", hashed)

    async def taken() -> PublishedRecord:
        class Ends:
            async def read(self) -> Any:
                return grpc.aio.EOF

        class Keeps:
            def check_size(self, size_bytes: int) -> None:
                assert size_bytes > len(key)

            def fields(self) -> tuple[()]:
                return ()

            async def append(self, record: PublishedRecord) -> Any:
                found.append(record)
                return OnItsWay()

        found: list[PublishedRecord] = []
        context, appender = Ends(), Keeps()
        stream = PublishStream(1, lambda _: None)
        records = RecordReading(stream, appender, 100, asyncio.Semaphore(1))  # type: ignore[arg-type]
        request = agent_pb.PublishRecordRequest(key=key, value=RecordValue())
        received = Received(agent_pb.PublishRecordRequest, request.SerializeToString())
        await records.read(context, received)  # type: ignore[arg-type]
        return found[0]

    record = asyncio.run(taken())
    assert record.partition == partition_of_key(key, 100)
    [thread] = threads
    assert thread is not threading.main_thread()


@pytest.mark.parametrize("value", [b"v", bytes(CHECKED_AT_ONCE_BYTES)], ids=["small", "large"])
def test_a_record_may_have_nothing_but_a_value(value: bytes) -> None:
    request = pb.PublishMessageRequest(data=pb.DataMessage(value=value))
    received = Received(pb.PublishMessageRequest, request.SerializeToString())
    found, found_value = publish_reading._request_of(received)
    assert (found.WhichOneof("message"), found_value) == ("data", value)


def test_a_message_is_let_go_while_the_next_one_is_waited_for() -> None:
    async def talk() -> None:
        going: list[weakref.ref[Received]] = []

        class Stream:
            async def read(self) -> Any:
                gc.collect()
                assert all(each() is None for each in going[:-1])
                if len(going) == 2:
                    assert going[-1]() is None
                    return grpc.aio.EOF
                return made()

        def made() -> Received:
            received = Seen(agent_pb.PublishRecordRequest, b"")
            going.append(weakref.ref(received))
            return received

        class Seen(Received):
            __slots__ = ("__weakref__",)

        nothing: Any = None
        records = RecordReading(PublishStream(1, lambda _: None), nothing, 1, nothing)
        stream: Any = Stream()
        await records.read(stream, made())

    asyncio.run(talk())


def test_records_that_are_refused_are_read_no_faster_than_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appending, "IN_FLIGHT_MAX", 5)
    bad = agent_pb.PublishRecordRequest(value=RecordValue(), headers=[pb.Header()] * 1001)

    async def talk() -> None:
        class Stream:
            count = 0

            async def read(self) -> Any:
                self.count += 1
                await asyncio.sleep(0)
                return Received(agent_pb.PublishRecordRequest, bad.SerializeToString())

        nothing: Any = None
        context: Any = Stream()
        stuck = PublishStream(1, lambda _: None)
        stuck.add(OnItsWay(), 1, None, 1)  # type: ignore[arg-type]
        records = RecordReading(stuck, nothing, 1, nothing)
        reading = asyncio.create_task(records.read(context, await context.read()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert context.count == 5
        reading.cancel()

    asyncio.run(talk())


class OnItsWay:
    """The future of a record."""

    def done(self) -> bool:
        return False

    def add_done_callback(self, _: object) -> None:
        pass
