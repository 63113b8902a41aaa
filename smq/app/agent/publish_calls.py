"""PublishMessage of SeaweedMQ's broker, and the publish sessions of its agent.

broker   init names a partition by its range; an empty answer; then records, answered by times
agent    a session names a topic and its type; the first message names the session; then typed
         records, which the key spreads over partitions, answered by their count
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from smq.agent.answers import INTERVAL_MAX, PublishAnswer
from smq.agent.layouts import RingRange
from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.raw_fields import raw_field
from smq.agent.records import misfit
from smq.agent.sequences import Sequences
from smq.app.agent.appending import (
    MS_NS,
    Appender,
    Headers,
    PublishedRecord,
    PublishStream,
    SentRecord,
    invalid,
)
from smq.app.agent.broker import BrokerSide
from smq.app.agent.live import Live, LivePublisher
from smq.app.agent.methods import Context, Handler, Received
from smq.app.agent.publish_sessions import PublishSession, PublishSessions, SessionPublishers
from smq.app.agent.refusals import CallRefused, Code, attempted
from smq.app.agent.topic_calls import TopicCalls
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.agent.translation import range_of, topic_name
from smq.app.process.clock import wall_ms
from smq.model.partitioner import partition_of_key

SESSION_BITS = 63


class PublishCalls:
    """The calls of both services by which records come in."""

    def __init__(
        self, topics: KnownTopics, broker: BrokerSide, calls: TopicCalls, live: Live[LivePublisher]
    ) -> None:
        self._topics, self._broker, self._calls, self._live = topics, broker, calls, live
        self._sequences = Sequences[SentRecord]()
        self._sessions = PublishSessions()

    def broker_handlers(self) -> dict[str, Handler]:
        """The calls of the broker service, by name."""
        return {"PublishMessage": self._publish_messages}

    def agent_handlers(self) -> dict[str, Handler]:
        """The calls of the agent service, by name."""
        return {
            "StartPublishSession": self._start_session,
            "ClosePublishSession": self._close_session,
            "PublishRecord": self._publish_records,
        }

    # --- the broker ------------------------------------------------------------------------------

    async def _publish_messages(self, _: Any, context: Context) -> None:  # noqa: ANN401
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        begun = await attempted(self._begun(first, context))
        if isinstance(begun, CallRefused):
            answer = pb.PublishMessageResponse(error=begun.sentence, error_code=begun.code)
            answer.should_close = True
            await context.write(answer)
            return
        topic, wanted, partition, appender = begun
        await context.write(pb.PublishMessageResponse())
        now_ns = wall_ms() * MS_NS
        publisher = self._live.begin(
            LivePublisher(
                topic=topic.id,
                partition=wanted,
                name=first.init.publisher_name,
                client_id=context.peer(),
                connected_ns=now_ns,
                seen_ns=now_ns,
            )
        )
        try:
            stream = PublishStream(first.init.ack_interval, lambda answer: _note(publisher, answer))
            read = _read_messages(context, stream, appender, partition, publisher)
            await _both(stream, read, lambda answer: context.write(_message_answer(answer)))
        finally:
            self._live.end(publisher)

    async def _begun(
        self, first: pb.PublishMessageRequest, context: Context
    ) -> tuple[KnownTopic, RingRange, int, Appender]:
        """What the first message of a stream says."""
        if first.WhichOneof("message") != "init":
            raise invalid("the first message of a stream is its init")
        topic = self._topics.asked(context, topic_name(first.init.topic))
        wanted, publisher = range_of(first.init.partition), first.init.publisher_name
        context.name_client(publisher)
        partition = topic.partition_of(wanted)
        lingers = first.init.ack_interval > 1
        appender = await self._appender(topic, publisher, context, lingers=lingers)
        return topic, wanted, partition, appender

    async def _appender(
        self, topic: KnownTopic, publisher: str, context: Context, *, lingers: bool = True
    ) -> Appender:
        producer = await self._broker.producer(lingers=lingers)
        name = f"{context.owner}\0{publisher}" if publisher else ""  # Others' are not its own.
        return Appender(producer, self._topics, topic, name, self._sequences)

    # --- the agent -------------------------------------------------------------------------------

    async def _start_session(
        self, request: agent_pb.StartPublishSessionRequest, context: Context
    ) -> agent_pb.StartPublishSessionResponse:
        wanted = pb.ConfigureTopicRequest(
            topic=request.topic,
            partition_count=request.partition_count,
            message_record_type=request.record_type,
        )
        context.check(topic_name(request.topic))
        topic = await attempted(self._calls.configured(wanted, context))
        if isinstance(topic, CallRefused):
            return agent_pb.StartPublishSessionResponse(error=topic.sentence)
        session_id = secrets.randbits(SESSION_BITS)
        session = PublishSession(topic, request.publisher_name, context.owner)
        self._sessions.begin(session_id, session)
        return agent_pb.StartPublishSessionResponse(session_id=session_id)

    async def _close_session(
        self, request: agent_pb.ClosePublishSessionRequest, context: Context
    ) -> agent_pb.ClosePublishSessionResponse:
        if self._sessions.end(request.session_id, context.owner) is None:
            error = f"there is no session {request.session_id}"
            return agent_pb.ClosePublishSessionResponse(error=error)
        return agent_pb.ClosePublishSessionResponse()

    async def _publish_records(self, _: Any, context: Context) -> None:  # noqa: ANN401
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        session_id = first.message.session_id
        session = self._sessions.find(session_id, context.owner)
        if session is None:
            await context.write(
                agent_pb.PublishRecordResponse(
                    error=f"there is no session {session_id}: it ends with its stream",
                    error_code=Code.PUBLISHER_NOT_FOUND,
                )
            )
            return
        publishers = SessionPublishers(self._live, session, context.peer())
        try:
            context.check(session.topic.name)
            context.name_client(session.publisher)
            appender = await self._appender(session.topic, session.publisher, context)
            stream = PublishStream(INTERVAL_MAX, publishers.note)
            read = _read_records(context, first, stream, appender, session.topic)
            await _both(stream, read, lambda answer: context.write(_record_answer(answer)))
        finally:
            publishers.end()
            self._sessions.end(session_id, context.owner)


async def _both(
    stream: PublishStream,
    read: Awaitable[None],
    write: Callable[[PublishAnswer], Awaitable[object]],
) -> None:
    """Read and answer at the same time; the end of a stream waits for its answers."""

    async def reading() -> None:
        await read
        stream.end()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(reading())
            group.create_task(stream.answer(write))
    except* CallRefused as refused:  # The call is allowed no more.
        raise refused.exceptions[0] from None


def _note(publisher: LivePublisher, answer: PublishAnswer) -> None:
    if answer.last_offset >= 0:
        publisher.published_offset = publisher.acked_offset = answer.last_offset


async def _read_messages(
    context: Context,
    stream: PublishStream,
    appender: Appender,
    partition: int,
    publisher: LivePublisher,
) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        now_ns = wall_ms() * MS_NS
        publisher.seen_ns = now_ns
        data = request.data
        tag = data.ts_ns or now_ns
        sequence = data.sequence if data.HasField("sequence") else None
        if request.WhichOneof("message") != "data":
            stream.refuse(invalid("a stream has one init, which it had"), tag, None)
        elif data.ctrl.is_close:
            stream.mark(tag)
        elif data.ts_ns < 0:
            stream.refuse(invalid(f"ts_ns is {data.ts_ns}"), tag, sequence)
        else:
            headers = _headers(data.headers)
            time_ms = tag // MS_NS
            key = data.key or None
            record = PublishedRecord(data.value, key, partition, time_ms, headers, sequence)
            await _append(stream, appender, record, tag)


async def _read_records(
    context: Context,
    received: Received,
    stream: PublishStream,
    appender: Appender,
    topic: KnownTopic,
) -> None:
    fields, count = topic.fields, topic.layout.partition_count
    tag = 0
    while received is not grpc.aio.EOF:
        request = received.message
        if request.HasField("value"):
            tag += 1
            sequence = request.sequence if request.HasField("sequence") else None
            why = misfit(fields, request.value) if fields else ""
            if why:
                stream.refuse(invalid(f"record {tag}: {why}"), tag, sequence)
            else:
                key = request.key or None
                partition = None if key is None else partition_of_key(key, count)
                value, headers = _value_of(received), _headers(request.headers)
                record = PublishedRecord(value, key, partition, wall_ms(), headers, sequence)
                await _append(stream, appender, record, tag)
        received = await context.read()


def _value_of(received: Received) -> bytes:
    """A record's value as its publisher has marshalled it."""
    raw = raw_field(received.data, agent_pb.PublishRecordRequest.VALUE_FIELD_NUMBER)
    return received.message.value.SerializeToString() if raw is None else raw


async def _append(
    stream: PublishStream, appender: Appender, record: PublishedRecord, tag: int
) -> None:
    await stream.has_room()
    sent = await attempted(appender.append(record))
    if isinstance(sent, CallRefused):
        stream.refuse(sent, tag, record.sequence)
    else:
        stream.add(sent, tag, record.sequence, len(record.value) + len(record.key or b""))


def _headers(found: Iterable[pb.Header]) -> Headers:
    return [(each.key, each.value if each.HasField("value") else None) for each in found]


def _message_answer(answer: PublishAnswer) -> pb.PublishMessageResponse:
    return pb.PublishMessageResponse(
        ack_ts_ns=answer.tag,
        error=_said(answer),
        error_code=answer.error_code,
        assigned_offset=max(0, answer.last_offset),
        base_offset=max(0, answer.base_offset),
        sequence=answer.sequence,
    )


def _record_answer(answer: PublishAnswer) -> agent_pb.PublishRecordResponse:
    return agent_pb.PublishRecordResponse(
        ack_sequence=answer.tag,
        error=_said(answer),
        error_code=answer.error_code,
        base_offset=max(0, answer.base_offset),
        last_offset=max(0, answer.last_offset),
        partition=answer.partition,
        sequence=answer.sequence,
    )


def _said(answer: PublishAnswer) -> str:
    if not answer.merged_errors:
        return answer.error
    more = f"{answer.merged_errors} more records were refused, and their answers not read"
    return f"{answer.error}; {more}" if answer.error else more
