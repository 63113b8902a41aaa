"""SubscribeMessage of SeaweedMQ's broker: one partition, read by one instance of a group.

Records with a key are to be acknowledged, those without one count as acknowledged when they are
written: SeaweedMQ's own client acknowledges no others. With the call's metadata `smq-ack: explicit`
all are to be.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import grpc

from smq.agent.in_flight import InstanceWindows, RecordIdentity
from smq.agent.places import sought
from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.read_records import ReadRecord, WrittenAnswer, message_answer
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES, done_by_size
from smq.app.agent.appending import MS_NS
from smq.app.agent.commits import group_of
from smq.app.agent.members import InstanceName
from smq.app.agent.methods import Context, Handler
from smq.app.agent.refusals import ENDS, REFUSALS, CallRefused, attempted, refused_by
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
from smq.client.errors import NoSuchTopic
from smq.model.offset_types import WantedPlace


class SubscribeCalls:
    """StreamAnswers SubscribeMessage."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {"SubscribeMessage": self._subscribe}

    async def _subscribe(self, _: Any, context: Context) -> None:  # noqa: ANN401
        first = await context.read()
        if first is grpc.aio.EOF:
            return
        answers = StreamAnswers(context)
        group = group_of(first.init.consumer_group)
        name = InstanceName(group, first.init.consumer_id, context.owner)
        async with AsyncExitStack() as stack:
            begun = await attempted(self._entered(first, answers, name, stack))
            if isinstance(begun, CallRefused):
                await answers.refuse(begun)
                return
            await self._stream(answers, begun)

    async def _entered(
        self,
        first: pb.SubscribeMessageRequest,
        answers: "StreamAnswers",
        name: InstanceName,
        stack: AsyncExitStack,
    ) -> PartitionSubscription:
        """The subscription of a stream, which ends with the stack. Raises REFUSALS."""
        topic, context = self._topic_of(first, answers.context, name.group), answers.context
        client_id = first.init.client_id or context.peer()
        present = self._subscriptions.present(name, client_id, context)
        await stack.enter_async_context(present)
        windows = stack.enter_context(self._subscriptions.instances.stream_of(name))
        begun, note = await self._begun(first, topic, answers.context, name, windows)
        stack.push_async_callback(self._subscriptions.end, begun)
        if note:
            await answers.say(note)
        return begun

    def _topic_of(
        self, first: pb.SubscribeMessageRequest, context: Context, group: str
    ) -> KnownTopic:
        if first.WhichOneof("message") != "init":
            raise ValueError("the first message of a stream is its init")
        return self._subscriptions.around.topics.asked(context, topic_name(first.init.topic), group)

    async def _begun(
        self,
        first: pb.SubscribeMessageRequest,
        topic: KnownTopic,
        context: Context,
        name: InstanceName,
        windows: InstanceWindows,
    ) -> tuple[PartitionSubscription, str]:
        """What the first message of a stream says, and a note on where it begins. Raises
        REFUSALS."""
        init = first.init
        context.name_client(init.client_id)
        place, is_all = init.partition_offset, is_explicit(context)
        member = GroupInstance(
            name,
            windows,
            client_id=init.client_id or context.peer(),
            window=init.sliding_window_size,
            tracks=lambda record: is_all or bool(record.key),
            keep=await filter_of(init.filter, topic),
            asker=SubscriberRights(context.asker, context.rights),
        )
        partition = topic.partition_of(range_of(place.partition))
        wanted = WantedPlace(init.offset_type, place.start_offset, place.start_ts_ns)
        known = await self._subscriptions.places(member.group, topic, [partition])
        subscription, start = await self._subscriptions.begin(
            member, topic, partition, wanted, known
        )
        return subscription, start.note

    async def _stream(self, answers: "StreamAnswers", subscription: PartitionSubscription) -> None:
        """Deliver and read until either ends; then say that this was all, and why."""
        reading = asyncio.create_task(self._read(answers, subscription))
        reading.add_done_callback(lambda _: subscription.end())
        try:
            await subscription.run(answers.deliver, answers.say)
        except NoSuchTopic:
            await answers.end(is_end_of_topic=True)
        except REFUSALS as error:
            await answers.refuse(refused_by(error))
        else:
            if reading.done():
                reading.result()  # It may have sent what is no request.
            await subscription.commits.flush(subscription.terms.group)
            await answers.end()
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self, answers: "StreamAnswers", subscription: PartitionSubscription) -> None:
        while (request := await answers.context.read()) is not grpc.aio.EOF:
            subscription.subscriber.seen_ns = wall_ms() * MS_NS
            match request.WhichOneof("message"):
                case "ack":
                    self._take_ack(request.ack, subscription)
                case "seek":
                    wanted = sought(request.seek.offset_type, request.seek.offset)
                    await self._seek(answers, wanted, subscription)
                case _:
                    await answers.say("a stream has one init, which it had")

    def _take_ack(
        self, ack: pb.SubscribeMessageRequest.AckMessage, subscription: PartitionSubscription
    ) -> None:
        if ack.HasField("offset"):
            self._subscriptions.settle_offset(subscription, ack.offset, nack=ack.nack)
        else:
            identity = RecordIdentity(ack.ts_ns, ack.key)
            self._subscriptions.settle(subscription.terms.instance, identity, nack=ack.nack)

    async def _seek(
        self, answers: "StreamAnswers", wanted: WantedPlace, subscription: PartitionSubscription
    ) -> None:
        """Continue elsewhere; an empty control message says that it is done."""
        refused = await attempted(self._subscriptions.seek(subscription, wanted, answers.say))
        if refused is not None:
            await answers.say(refused.sentence)


class StreamAnswers:
    """What a stream answers, from the task that delivers and the one that reads: one at a time,
    for gRPC fails a write that begins during another one."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._writing = asyncio.Lock()

    async def deliver(self, record: ReadRecord, _: int) -> None:
        answer = partial(message_answer, record)
        await self._write(await done_by_size(answer, len(record.key), COPIED_AT_ONCE_BYTES))

    async def refuse(self, refused: CallRefused) -> None:
        """End a stream with its reason; by a status where the caller can only go elsewhere."""
        if refused.status in ENDS:
            await self.context.abort(refused.status, refused.sentence)
        await self.say(refused.sentence)

    async def say(self, note: str) -> None:
        ctrl = pb.SubscribeMessageResponse.SubscribeCtrlMessage(error=note)
        await self._write(pb.SubscribeMessageResponse(ctrl=ctrl))

    async def end(self, *, is_end_of_topic: bool = False) -> None:
        ctrl = pb.SubscribeMessageResponse.SubscribeCtrlMessage(
            is_end_of_stream=True, is_end_of_topic=is_end_of_topic
        )
        await self._write(pb.SubscribeMessageResponse(ctrl=ctrl))

    async def _write(self, response: pb.SubscribeMessageResponse | WrittenAnswer) -> None:
        async with self._writing:
            await self.context.write(response)
