"""Reads what publishers send, and appends it: each record is looked at before it costs anything.

A message that no topic takes is not even parsed, and what takes long for a large one runs in a
thread. A message is let go while the next one is waited for, which may be long in coming.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.raw_fields import raw_field, raw_number
from smq.agent.records import misfit_of_bytes, misfit_of_message
from smq.app.agent.appending import (
    MS_NS,
    Appender,
    Headers,
    PublishedRecord,
    PublishStream,
    invalid,
)
from smq.app.agent.live import LivePublisher
from smq.app.agent.methods import Context, Received
from smq.app.agent.refusals import CallRefused, attempted
from smq.app.process.clock import wall_ms
from smq.model.partitioner import partition_of_key

HEADERS_MAX = 1000  # Of a record: each costs some microseconds, in which all others wait.
CHECKED_AT_ONCE_BYTES = 16 * 1024
"""A larger value is compared with its type in a thread, and a larger key is hashed in one."""

Found = TypeVar("Found")


def _time_in(data: bytes) -> int:
    """The time of a message that is not parsed; 0: it is not found."""
    record = raw_field(data, pb.PublishMessageRequest.DATA_FIELD_NUMBER) or b""
    return raw_number(record, pb.DataMessage.TS_NS_FIELD_NUMBER)


def _oversize(received: Received, appender: Appender) -> CallRefused | None:
    """Why a message is not even parsed."""
    if len(received.data) > CHECKED_AT_ONCE_BYTES:
        try:
            appender.check_size(len(received.data))
        except CallRefused as refused:
            return refused
    return None


def _request_of(received: Received) -> tuple[pb.PublishMessageRequest, bytes]:
    """A message without its record's value, if it is large, and that value.

    Raises CallRefused if it is none, and ValueError with a sentence.
    """
    if len(received.data) <= CHECKED_AT_ONCE_BYTES:
        whole = received.message
        return whole, whole.data.value
    request, data = received.cut(pb.PublishMessageRequest.DATA_FIELD_NUMBER)
    if data is None:
        return request, b""
    rest, value = Received(pb.DataMessage, data).cut(pb.DataMessage.VALUE_FIELD_NUMBER)
    request.data.SetInParent()  # All of it may have been its value.
    request.data.CopyFrom(rest)
    return request, value or b""


def _record_of(
    request: pb.PublishMessageRequest, value: bytes, partition: int, tag: int
) -> PublishedRecord:
    """The record that a message is. Raises CallRefused."""
    if request.WhichOneof("message") != "data":
        raise invalid("a stream has one init, which it had")
    data = request.data
    if data.ts_ns < 0:
        raise invalid(f"ts_ns is {data.ts_ns}")
    if why := _too_many(data.headers):
        raise invalid(why)
    sequence = data.sequence if data.HasField("sequence") else None
    headers = _headers(data.headers)
    return PublishedRecord(value, data.key or None, partition, tag // MS_NS, headers, sequence)


class ValueChecks:
    """Compares values with the type that a topic's records have now; a few large ones at a time."""

    def __init__(self, appender: Appender, turns: asyncio.Semaphore) -> None:
        self._appender, self._turns = appender, turns

    async def misfit_of_record(self, value: bytes) -> str:
        """Why a value is no RecordValue, or not of the topic's type. Raises CallRefused."""
        return await self.worked(len(value), misfit_of_bytes, self._appender.fields(), value)

    async def misfit_of_message(self, value: bytes) -> str:
        """The same; where the topic has no type it may be any bytes."""
        fields = self._appender.fields()
        return await self.worked(len(value), misfit_of_message, fields, value) if fields else ""

    async def worked(
        self, size_bytes: int, work: Callable[..., Found], *arguments: object
    ) -> Found:
        """What some work on so many bytes gives: in a thread, if they are many."""
        if size_bytes <= CHECKED_AT_ONCE_BYTES:
            return work(*arguments)
        async with self._turns:
            return await asyncio.to_thread(work, *arguments)


class MessageReading:
    """Reads the records of a broker's stream, which are of one partition."""

    def __init__(
        self,
        stream: PublishStream,
        appender: Appender,
        partition: int,
        publisher: LivePublisher,
        turns: asyncio.Semaphore,
    ) -> None:
        self._stream, self._appender, self._partition = stream, appender, partition
        self._publisher, self._checks = publisher, ValueChecks(appender, turns)

    async def read(self, context: Context) -> None:
        """Append one record after the other, until the stream ends."""
        while (received := await context.read()) is not grpc.aio.EOF:
            await self._stream.has_room()
            self._publisher.seen_ns = now_ns = wall_ms() * MS_NS
            if why := _oversize(received, self._appender):
                self._stream.refuse(why, _time_in(received.data) or now_ns, None)
            else:
                await self._take(received, now_ns)
            del received  # It may be large, and the next one may be long in coming.

    async def _take(self, received: Received, now_ns: int) -> None:
        try:
            request, value = _request_of(received)
        except ValueError as error:
            tag = _time_in(received.data) or now_ns
            self._stream.refuse(invalid(str(error)), tag, None)
            return
        tag = request.data.ts_ns or now_ns
        if request.WhichOneof("message") == "data" and request.data.ctrl.is_close:
            self._stream.mark(tag)
            return
        try:
            record = _record_of(request, value, self._partition, tag)
            if why := await self._checks.misfit_of_message(value):
                raise invalid(why)
        except CallRefused as refused:
            sequence = request.data.sequence if request.data.HasField("sequence") else None
            self._stream.refuse(refused, tag, sequence)
        else:
            await _append(self._stream, self._appender, record, tag)


class RecordReading:
    """Reads the records of an agent's stream."""

    def __init__(
        self,
        stream: PublishStream,
        appender: Appender,
        partition_count: int,
        turns: asyncio.Semaphore,
    ) -> None:
        self._stream, self._appender, self._count = stream, appender, partition_count
        self._checks = ValueChecks(appender, turns)
        self._tag = 0

    async def read(self, context: Context, received: Received | None) -> None:
        """Append one record after the other, until the stream ends."""
        while received is not None and received is not grpc.aio.EOF:
            await self._take(received)
            received = None  # Let it go while the next one is waited for.
            received = await context.read()

    async def _take(self, received: Received) -> None:
        await self._stream.has_room()
        if oversize := _oversize(received, self._appender):
            self._tag += 1
            self._stream.refuse(oversize, self._tag, None)
            return
        try:
            request, value = received.cut(agent_pb.PublishRecordRequest.VALUE_FIELD_NUMBER)
        except ValueError as error:
            self._tag += 1
            self._stream.refuse(invalid(f"record {self._tag}: {error}"), self._tag, None)
            return
        if value is None:
            return
        self._tag += 1
        sequence = request.sequence if request.HasField("sequence") else None
        try:
            why = _too_many(request.headers) or await self._checks.misfit_of_record(value)
            if why:
                raise invalid(f"record {self._tag}: {why}")
        except CallRefused as refused:
            self._stream.refuse(refused, self._tag, sequence)
            return
        key = request.key or None
        partition = None
        if key is not None:
            partition = await self._checks.worked(len(key), partition_of_key, key, self._count)
        headers = _headers(request.headers)
        record = PublishedRecord(value, key, partition, wall_ms(), headers, sequence)
        await _append(self._stream, self._appender, record, self._tag)


async def _append(
    stream: PublishStream, appender: Appender, record: PublishedRecord, tag: int
) -> None:
    sent = await attempted(appender.append(record))
    if isinstance(sent, CallRefused):
        stream.refuse(sent, tag, record.sequence)
    else:
        stream.add(sent, tag, record.sequence, record.size_bytes)


def _too_many(headers: Sequence[pb.Header]) -> str:
    """A sentence; "": they are not."""
    count = len(headers)
    return f"it has {count} headers, and may have {HEADERS_MAX}" if count > HEADERS_MAX else ""


def _headers(found: Sequence[pb.Header]) -> Headers:
    return [(each.key, each.value if each.HasField("value") else None) for each in found]
