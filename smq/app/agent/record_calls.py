"""SubscribeRecord of SeaweedMQ's agent: the partitions of a topic, shared by a group's instances.

A record counts as acknowledged once it is written, as in SeaweedMQ's agent, whose clients send no
acknowledgements. With the call's metadata `smq-ack: explicit` each is to be acknowledged.

A partition that moves is released by its instance, with its commits, before another one has it.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import grpc

from smq.agent.in_flight import RecordIdentity
from smq.agent.layouts import PARTITIONS_MAX
from smq.agent.places import SessionStarts, sought
from smq.agent.proto import mq_agent_pb2 as pb
from smq.agent.read_records import ReadRecord, WrittenAnswer, record_answer
from smq.app.agent.apart import done_by_size
from smq.app.agent.appending import MS_NS
from smq.app.agent.commits import group_of
from smq.app.agent.feeds import AT_ONCE_BYTES_MAX
from smq.app.agent.members import InstanceName
from smq.app.agent.methods import Context, Handler
from smq.app.agent.refusals import ENDS, REFUSALS, CallRefused, attempted, refused_by
from smq.app.agent.shares import Share, Sharings
from smq.app.agent.subscribing import (
    GroupInstance,
    Subscriptions,
    filter_of,
    is_explicit,
)
from smq.app.agent.subscription import PartitionSubscription, SubscriberRights
from smq.app.agent.topics import KnownTopic
from smq.app.agent.translation import range_of, topic_name
from smq.app.process.clock import wall_ms
from smq.model.offset_types import OffsetType, WantedPlace

RELEASE_S = 10.0
ACKED_S = 1.0  # For acknowledgements on their way when a partition goes to another instance.
LOOK_S = 1.0  # Between two looks for new partitions.
_BY_OFFSET = {OffsetType.EXACT_OFFSET, OffsetType.RESET_TO_OFFSET}

Init = pb.SubscribeRecordRequest.InitSubscribeRecordRequest


class RecordCalls:
    """Answers SubscribeRecord."""

    def __init__(self, subscriptions: Subscriptions, sharings: Sharings) -> None:
        self._subscriptions = subscriptions
        self._sharings = sharings
        self._streams: set[RecordStream] = set()
        self._has_stopped = False

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"SubscribeRecord": self._subscribe}

    def end_all(self) -> None:
        """The process ends: so do all streams, and those that are still to begin."""
        self._has_stopped = True
        for each in self._streams:
            each.end()

    async def _subscribe(self, _: Any, context: Context) -> None:  # noqa: ANN401
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        topic = await attempted(self._topic_of(first, context))
        if isinstance(topic, CallRefused):
            await context.write(pb.SubscribeRecordResponse(error=topic.sentence))
            return
        init = first.init
        instance = init.consumer_group_instance_id
        name = InstanceName(group_of(init.consumer_group), instance, context.owner)
        async with AsyncExitStack() as stack:
            present = self._subscriptions.present(name, instance or context.peer(), context)
            refused = await attempted(stack.enter_async_context(present))
            if refused is None:
                await self._serve(name, topic, init, context)
            elif refused.status in ENDS:
                await context.abort(refused.status, refused.sentence)
            else:
                await context.write(_error(refused.sentence))

    async def _serve(
        self, name: InstanceName, topic: KnownTopic, init: Init, context: Context
    ) -> None:
        context.name_client(name.instance)
        partitions_max = max(0, init.max_subscribed_partitions) or PARTITIONS_MAX
        with self._subscriptions.instances.stream_of(name) as windows:
            is_all = is_explicit(context)
            member = GroupInstance(
                name,
                windows,
                client_id=context.peer(),
                window=init.sliding_window_size,
                tracks=lambda _: is_all,
                keep=await filter_of(init.filter, topic),
                asker=SubscriberRights(context.asker, context.rights),
            )
            share = self._sharings.join(name, topic, partitions_max)
            stream = RecordStream(self._subscriptions, member, topic, share, context)
            self._streams.add(stream)
            if self._has_stopped:
                stream.end()
            try:
                await stream.serve(_starts(topic, init))
            finally:
                self._streams.discard(stream)
                share.leave()

    async def _topic_of(self, first: pb.SubscribeRecordRequest, context: Context) -> KnownTopic:
        """The topic of a stream's first message. Raises REFUSALS."""
        if not first.HasField("init"):
            raise ValueError("the first message of a stream is its init")
        group = group_of(first.init.consumer_group)
        name = topic_name(first.init.topic)
        topic = self._subscriptions.around.topics.asked(context, name, group)
        _starts(topic, first.init)
        await filter_of(first.init.filter, topic)
        return topic


def _starts(topic: KnownTopic, init: Init) -> SessionStarts:
    """Where a session wants its partitions to begin. Raises UnknownRange, ValueError."""
    if len(init.partition_offsets) > PARTITIONS_MAX:
        raise ValueError(f"partition_offsets has more than {PARTITIONS_MAX} entries")
    kind = int(init.offset_type)
    entries = {
        topic.partition_of(range_of(each.partition)): WantedPlace(
            kind, each.start_offset, each.start_ts_ns or init.offset_ts_ns
        )
        for each in init.partition_offsets
    }
    names_no_time = kind == OffsetType.EXACT_TS_NS and entries and not init.offset_ts_ns
    others = OffsetType.RESUME_OR_EARLIEST if kind in _BY_OFFSET or names_no_time else kind
    return SessionStarts(entries, WantedPlace(others, ts_ns=init.offset_ts_ns))


class RecordStream:
    """A stream of one instance: a subscription for each of its partitions, all on one stream."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        member: GroupInstance,
        topic: KnownTopic,
        share: Share,
        context: Context,
    ) -> None:
        self._subscriptions, self._member, self._topic = subscriptions, member, topic
        self._share, self._context = share, context
        self._parts: dict[int, tuple[PartitionSubscription, asyncio.Task[None]]] = {}
        self._writing = asyncio.Lock()
        self._has_ended = False
        self._ending: CallRefused | None = None

    def end(self) -> None:
        """Deliver no more."""
        self._has_ended = True
        self._share.news.set()

    async def serve(self, starts: SessionStarts) -> None:
        """Have one's share of the partitions until the client, the topic or this process ends."""
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(lambda _: self.end())
        try:
            while not self._has_ended:
                self._share.news.clear()
                self._grow()
                await self._follow(starts)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._share.news.wait()
        except REFUSALS as error:
            self._ending = refused_by(error)
        finally:
            await self._let_go(reading)
        if not reading.cancelled():
            reading.result()  # It may be allowed no more, or have sent what is no request.
        await self._say_end()

    async def _let_go(self, reading: asyncio.Task[None]) -> None:
        """Release all partitions, whatever becomes of one of them, or of this call meanwhile.

        gRPC ends the reading first and cancels the call a few turns later. Nothing here is
        cancelled with it: a task that has not begun yet would never begin.
        """
        reading.cancel()
        delivering = [task for _, task in self._parts.values()]
        releasing = [asyncio.create_task(self._release(each)) for each in self._parts]
        left: set[asyncio.Task[None]] = {reading, *releasing}
        cancelled = None
        while left:
            try:
                _, left = await asyncio.wait(left)
            except asyncio.CancelledError as error:
                cancelled = error
                for task in delivering:
                    task.cancel()  # Its client has gone, or may read no more.
        if cancelled is not None:
            raise cancelled
        for each in releasing:
            each.result()

    def _grow(self) -> None:
        now = self._subscriptions.around.topics.find_or_none(self._topic.name)
        if now is not None and now.id == self._topic.id:
            self._share.grow(now.layout.partition_count)
            self._topic = now

    async def _follow(self, starts: SessionStarts) -> None:
        """Release what is another's, and begin what is ours."""
        await asyncio.gather(*map(self._hand_over, self._share.to_release()))
        taken, member, topic = self._share.take(), self._member, self._topic
        if not taken:
            return
        partitions = [partition for partition, _ in taken]
        known = await self._subscriptions.places(member.group, topic, partitions)
        for partition, taken_over in taken:
            wanted = starts.take(partition, taken_over=taken_over)
            subscription, start = await self._subscriptions.begin(
                member, topic, partition, wanted, known
            )
            task = asyncio.create_task(self._deliver(subscription, partition, start.note))
            task.add_done_callback(self._delivered)
            self._parts[partition] = subscription, task

    async def _deliver(
        self, subscription: PartitionSubscription, partition: int, note: str
    ) -> None:
        async def write(record: ReadRecord, deliveries: int) -> None:
            answer = partial(record_answer, record, partition, deliveries)
            await self._write(await done_by_size(answer, record.size_bytes, AT_ONCE_BYTES_MAX))

        async def say(sentence: str) -> None:
            await self._write(pb.SubscribeRecordResponse(error=sentence, partition=partition))

        try:
            if note:
                await say(note)
            await subscription.run(write, say)
        except REFUSALS as error:
            self._ending = refused_by(error)
            self.end()

    def _delivered(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.end()  # `_release` raises it: a bug of ours.

    async def _hand_over(self, partition: int) -> None:
        """Let another instance have a partition, once what ours has of it is acknowledged."""
        await self._release(partition, ACKED_S)
        self._share.release(partition)

    async def _release(self, partition: int, acked_s: float = 0) -> None:
        subscription, task = self._parts[partition]
        subscription.end()
        try:  # Its client may read nothing: that holds up nobody else.
            done, _ = await asyncio.wait([task], timeout=RELEASE_S)
            if done and acked_s:
                await subscription.acknowledged(acked_s)
        finally:
            del self._parts[partition]
            task.cancel()
            await self._subscriptions.end(subscription)
        for each in done:
            if not each.cancelled():
                each.result()

    async def _write(self, response: pb.SubscribeRecordResponse | WrittenAnswer) -> None:
        async with self._writing:
            await self._context.write(response)

    async def _read(self) -> None:
        while (request := await self._context.read()) is not grpc.aio.EOF:
            for subscription, _ in self._parts.values():
                subscription.subscriber.seen_ns = wall_ms() * MS_NS
            if request.HasField("seek"):
                await self._seek(request.seek)
            elif request.HasField("offset"):
                found = self._parts.get(request.ack_partition)
                if found is None:
                    self._member.windows.count_unknown()
                else:
                    nack = request.nack
                    self._subscriptions.settle_offset(found[0], request.offset, nack=nack)
            elif request.HasField("init"):
                await self._write(_error("a stream has one init, which it had"))
            else:
                identity = RecordIdentity(request.ack_sequence, request.ack_key)
                self._subscriptions.settle(self._member.windows, identity, nack=request.nack)

    async def _seek(self, seek: pb.SubscribeRecordRequest.SeekMessage) -> None:
        """Continue a partition elsewhere; an answer without a value says that it is done."""
        found = self._parts.get(seek.partition)
        if found is None:
            await self._write(_error(f"this stream does not have partition {seek.partition} now"))
            return

        async def say(note: str) -> None:
            await self._write(pb.SubscribeRecordResponse(error=note, partition=seek.partition))

        wanted = sought(seek.offset_type, seek.offset)
        refused = await attempted(self._subscriptions.seek(found[0], wanted, say))
        if refused is not None:
            await say(refused.sentence)

    async def _say_end(self) -> None:
        """Why the stream ends."""
        refused = self._ending
        if refused is None:
            await self._write(pb.SubscribeRecordResponse(is_end_of_stream=True))
        elif refused.status is grpc.StatusCode.CANCELLED:
            raise refused
        elif refused.status is grpc.StatusCode.NOT_FOUND:
            await self._write(
                pb.SubscribeRecordResponse(is_end_of_stream=True, is_end_of_topic=True)
            )
        elif refused.status in ENDS:
            await self._context.abort(refused.status, refused.sentence)
        else:
            await self._write(_error(refused.sentence))


def _error(sentence: str) -> pb.SubscribeRecordResponse:
    return pb.SubscribeRecordResponse(error=sentence)
