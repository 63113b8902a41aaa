"""PublishMessage of SeaweedMQ's broker, and the publish sessions of its agent.

broker   init names a partition by its range; an empty answer; then records, answered by times
agent    a session names a topic and its type; the first message names the session; then typed
         records, which the key spreads over partitions, answered by their count
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from smq.agent.answers import INTERVAL_MAX, PublishAnswer
from smq.agent.layouts import RingRange
from smq.agent.proto import mq_agent_pb2 as agent_pb, mq_broker_pb2 as pb
from smq.agent.sequences import Sequences
from smq.app.agent.appending import (
    MS_NS,
    Appender,
    KeptRecord,
    PublisherIdentity,
    PublishStream,
    invalid,
)
from smq.app.agent.broker import BrokerSide
from smq.app.agent.live import Live, LivePublisher
from smq.app.agent.methods import Context, Handler
from smq.app.agent.publish_reading import MessageReading, RecordReading
from smq.app.agent.publish_sessions import PublishSession, PublishSessions, SessionPublishers
from smq.app.agent.refusals import CallRefused, Code, attempted
from smq.app.agent.topic_calls import TopicCalls
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.agent.translation import range_of, topic_name
from smq.app.process.clock import wall_ms

SESSION_BITS = 63
NAME_CHARACTERS_MAX = 1024  # Of a publisher: its name is kept with its sequences.
CHECKED_AT_A_TIME = 2


class PublishCalls:
    """The calls of both services by which records come in."""

    def __init__(
        self, topics: KnownTopics, broker: BrokerSide, calls: TopicCalls, live: Live[LivePublisher]
    ) -> None:
        self._topics, self._broker, self._calls, self._live = topics, broker, calls, live
        self._sequences = Sequences[KeptRecord]()
        self._sessions = PublishSessions()
        self._checks = asyncio.Semaphore(CHECKED_AT_A_TIME)

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
        received = await context.read()
        if received is grpc.aio.EOF:
            return
        first = received.small_message
        begun = await attempted(self._begun(first, context))
        if isinstance(begun, CallRefused):
            answer = pb.PublishMessageResponse(error=begun.sentence, error_code=begun.code)
            answer.should_close = True
            await context.write(answer)
            return
        topic, wanted, partition, appender = begun
        name, interval = first.init.publisher_name, first.init.ack_interval
        del first, received  # The stream goes on.
        await context.write(pb.PublishMessageResponse())
        now_ns = wall_ms() * MS_NS
        publisher = self._live.begin(
            LivePublisher(
                topic=topic.id,
                partition=wanted,
                name=name,
                client_id=context.peer(),
                connected_ns=now_ns,
                seen_ns=now_ns,
            )
        )
        try:
            stream = PublishStream(interval, lambda answer: _note(publisher, answer))
            records = MessageReading(stream, appender, partition, publisher, self._checks)
            await _both(
                stream, records.read(context), lambda answer: context.write(_message_answer(answer))
            )
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
        _check_name(publisher)
        producer = await self._broker.producer(lingers=lingers)
        identity = PublisherIdentity(context.owner, publisher)
        return Appender(producer, self._topics, topic, identity, self._sequences)

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
        _check_name(request.publisher_name)
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
        session_id = first.small_message.session_id
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
            count = session.topic.layout.partition_count
            records = RecordReading(stream, appender, count, self._checks)
            read = records.read(context, first)
            del first  # It may be large, and the stream goes on.
            await _both(stream, read, lambda answer: context.write(_record_answer(answer)))
        finally:
            publishers.end()
            self._sessions.end(session_id, context.owner)


def _check_name(publisher: str) -> None:
    """Raises ValueError."""
    if len(publisher) > NAME_CHARACTERS_MAX:
        raise ValueError(f"a publisher's name has at most {NAME_CHARACTERS_MAX} characters")


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
