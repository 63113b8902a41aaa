"""What the subscriptions of both services have in common: how they begin and are acknowledged."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import NamedTuple

from smq.agent.filters import Test, parse_filter
from smq.agent.in_flight import (
    InstanceWindows,
    PartitionWindow,
    RecordIdentity,
    WindowLimits,
    window_of,
)
from smq.agent.layouts import range_of
from smq.agent.read_records import ReadRecord
from smq.app.agent.appending import MS_NS
from smq.app.agent.broker import BrokerSide
from smq.app.agent.commits import GroupCommits, NamedGroup
from smq.app.agent.dead_letters import MESSAGE_BYTES_MAX
from smq.app.agent.feeds import Keep, PartitionFeeds
from smq.app.agent.fetch_calls import all_ends_of
from smq.app.agent.gate import host_of
from smq.app.agent.live import Live, LiveSubscriber
from smq.app.agent.members import InstanceName
from smq.app.agent.methods import Context
from smq.app.agent.starts import PlacesKnown, start_at
from smq.app.agent.subscription import (
    AS_BROKER,
    HeldBytes,
    PartitionSubscription,
    SoughtPlace,
    SubscriberRights,
    SubscriptionTerms,
)
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.process.clock import wall_ms
from smq.client.names import TopicPartition
from smq.model.offset_types import Start, WantedPlace, resumes
from smq.model.topic_configs import GRPC_ACK_TIMEOUT

ACK_METADATA, EXPLICIT = "smq-ack", "explicit"

Tracks = Callable[[ReadRecord], bool]


class SubscriberSurroundings(NamedTuple):
    """What subscriptions of both services need."""

    topics: KnownTopics
    broker: BrokerSide
    feeds: PartitionFeeds
    commits: GroupCommits
    live: Live[LiveSubscriber]


class Instances:
    """The instances of groups that have streams now."""

    def __init__(self, count_unknown: Callable[[], object] = lambda: None) -> None:
        self._count_unknown = count_unknown
        self._windows: dict[InstanceName, InstanceWindows] = {}
        self._streams: Counter[InstanceName] = Counter()

    @contextmanager
    def stream_of(self, name: InstanceName) -> Iterator[InstanceWindows]:
        """The windows of an instance, for as long as one of its streams is open."""
        windows = self._windows.setdefault(name, InstanceWindows(self._count_unknown))
        self._streams[name] += 1
        try:
            yield windows
        finally:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name], self._windows[name]


def is_explicit(context: Context) -> bool:
    """Whether a call's metadata says that every record will be acknowledged."""
    metadata = context.invocation_metadata() or ()
    return any(key == ACK_METADATA and value == EXPLICIT for key, value in metadata)


async def filter_of(text: str, topic: KnownTopic) -> Keep | None:
    """What a subscriber wants of a topic; None: all of it. Raises ValueError with a sentence."""
    if not text.strip():
        return None
    return await asyncio.to_thread(_keep_of, parse_filter(text, topic.fields))


def _keep_of(test: Test) -> Keep:
    """In a thread: pyarrow, which few need, takes its time to come."""
    from smq.agent.filtering import RecordFilter  # noqa: PLC0415  (as above)

    found = RecordFilter(test)
    found.keep([ReadRecord()])  # Arrow refuses some patterns: now, not at a record.
    return Keep(found.keep, found.place_count)


class GroupInstance(NamedTuple):
    """Who subscribes, and how: `window` is what the client asks for."""

    name: InstanceName
    windows: InstanceWindows
    client_id: str
    window: int
    tracks: Tracks
    keep: Keep | None = None
    asker: SubscriberRights = AS_BROKER

    @property
    def group(self) -> NamedGroup:
        """The group, as its commits name it."""
        return NamedGroup(self.name.group, self.asker.peer)


class Subscriptions:
    """The subscriptions that are open now."""

    def __init__(
        self, around: SubscriberSurroundings, count_unknown: Callable[[], object] = lambda: None
    ) -> None:
        self.around = around
        self.instances = Instances(count_unknown)
        self._held = HeldBytes()
        self._has_stopped = False
        self._all: dict[PartitionSubscription, InstanceName] = {}
        self._of: defaultdict[InstanceWindows, set[PartitionSubscription]] = defaultdict(set)

    def present(
        self, name: InstanceName, client_id: str, context: Context
    ) -> AbstractAsyncContextManager[None]:
        """An instance is a member of its group, as long as it has streams. Raises CallRefused."""
        members = self.around.commits.members
        return members.present(name, client_id, host_of(context.peer()))

    async def places(
        self, group: NamedGroup, topic: KnownTopic, partitions: list[int]
    ) -> PlacesKnown:
        """What is known of some partitions, asked for at once. Raises CallRefused, BrokerError."""
        committed = await self.around.commits.begin(group) if group.name else {}
        find = partial(all_ends_of, topic=topic, partitions=partitions)
        return PlacesKnown(committed, await self.around.broker.ask(find))

    async def begin(
        self,
        member: GroupInstance,
        topic: KnownTopic,
        partition: int,
        wanted: WantedPlace,
        known: PlacesKnown,
    ) -> tuple[PartitionSubscription, Start]:
        """A subscription of a partition. Raises OutOfRange, ValueError, BrokerError."""
        around, group = self.around, member.group
        name = TopicPartition(topic.kafka_name, partition)
        start = await start_at(around.broker, topic, partition, wanted, known)
        if start.resets:
            around.commits.note(group, topic, partition, start.offset)
        reader = around.feeds.cursor(topic, partition, start.offset, member.keep)
        now_ns = wall_ms() * MS_NS
        subscriber = LiveSubscriber(
            topic=topic.id,
            partition=range_of(topic.layout, partition),
            group=group.name,
            consumer_id=member.name.instance,
            client_id=member.client_id,
            connected_ns=now_ns,
            seen_ns=now_ns,
        )
        ack_timeout_ms = int(around.topics.setting(topic, GRPC_ACK_TIMEOUT))
        limits = WindowLimits(window_of(member.window), ack_timeout_ms)
        subscription = PartitionSubscription(
            topic=topic,
            name=name,
            broker=around.broker,
            commits=around.commits,
            reader=reader,
            terms=SubscriptionTerms(
                group=group.name,
                rights=member.asker,
                instance=member.windows,
                tracks=member.tracks,
                new_window=lambda begin: PartitionWindow(begin, limits),
            ),
            subscriber=around.live.begin(subscriber),
            message_bytes_max=around.topics.setting(topic, MESSAGE_BYTES_MAX),
            keeps_commit=not start.resets and not resumes(wanted),
            all_held=self._held,
        )
        self.opened(subscription, member.name, member.windows)
        around.commits.members.note(member.name, name, 1)
        return subscription, start

    def opened(
        self, subscription: PartitionSubscription, name: InstanceName, windows: InstanceWindows
    ) -> None:
        """A subscription is open from now on."""
        self._all[subscription] = name
        self._of[windows].add(subscription)
        if self._has_stopped:
            subscription.end()

    async def end(self, subscription: PartitionSubscription) -> None:
        """A subscription has ended: commit what it has done, whatever happens to the caller."""
        instance, windows = self._all.pop(subscription), subscription.terms.instance
        self._of[windows].discard(subscription)
        if not self._of[windows]:
            del self._of[windows]
        self.around.live.end(subscription.subscriber)
        try:
            await asyncio.shield(subscription.close())
        finally:
            self.around.commits.members.note(instance, subscription.name, -1)

    def end_all(self) -> None:
        """The process ends: so do all streams, with what is acknowledged committed, and those that
        are still to begin."""
        self._has_stopped = True
        for each in self._all:
            each.end()

    def settle(self, windows: InstanceWindows, identity: RecordIdentity, *, nack: bool) -> None:
        """An acknowledgement by time and key, on any stream of an instance."""
        found = windows.find(identity)
        if found is None:
            return
        window, offset = found
        owner = next((each for each in self._of.get(windows, ()) if each.window is window), None)
        if owner is None:  # It ends in this turn.
            windows.count_unknown()
        else:
            self.settle_offset(owner, offset, nack=nack)

    def settle_offset(
        self, subscription: PartitionSubscription, offset: int, *, nack: bool
    ) -> None:
        """An acknowledgement by offset; one of a record that the subscriber does not have counts
        as unknown."""
        settle = subscription.release if nack else subscription.acknowledge
        if not settle(offset):
            subscription.terms.instance.count_unknown()

    async def seek(
        self,
        subscription: PartitionSubscription,
        wanted: WantedPlace,
        say: Callable[[str], Awaitable[object]],
    ) -> None:
        """Continue elsewhere, and say so. Raises OutOfRange, ValueError, BrokerError."""
        topic, partition = subscription.topic, subscription.name.partition
        known = await self.places(subscription.terms.named_group, topic, [partition])
        start = await start_at(self.around.broker, topic, partition, wanted, known)
        note = partial(say, start.note)
        await subscription.seek(SoughtPlace(start.offset, start.resets, note))
