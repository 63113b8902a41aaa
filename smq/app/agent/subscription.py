"""One partition, as a subscriber's stream gets it: in order, again if it fails, then committed.

    log ──cursor──▶ window ──write──▶ subscriber
                      │  ▲               │
            commit ◀──┘  └── ack, nack ──┘

Records that count as acknowledged once they are written take no room in the window. A record in the
window is kept, and is delivered again as it was: those of a stream have HELD_BYTES_MAX bytes, and
those of all streams ALL_HELD_BYTES_MAX of memory, above which each stream has one record at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from smq.agent.in_flight import InstanceWindows, PartitionWindow, RecordIdentity
from smq.agent.read_records import ReadRecord
from smq.app.agent.broker import BrokerSide
from smq.app.agent.commits import GroupCommits, NamedGroup
from smq.app.agent.dead_letters import DeadLetter, write as write_dead_letter
from smq.app.agent.feeds import FeedCursor
from smq.app.agent.live import LiveSubscriber
from smq.app.agent.topics import KnownTopic
from smq.app.process.clock import monotonic_ms
from smq.client.errors import NoSuchTopic
from smq.client.names import TopicPartition
from smq.client.producing.delivery.futures import BufferFull
from smq.model.errors import BrokerError
from smq.security.audit import DENIALS
from smq.security.principals import Peer
from smq.security.rights import EVERYTHING, Rights

READ_WAIT_S = 1.0
DEAD_LETTER_AGAIN_MS = 1000
HELD_BYTES_MAX = 32 * 1024 * 1024
ALL_HELD_BYTES_MAX = 256 * 1024 * 1024
HELD_RECORD_BYTES = 1280  # Beside their bytes: in memory they take as much.
GONE = "seek: this stream delivers the partition no more"

Write = Callable[[ReadRecord, int], Awaitable[object]]
"""Writes a record to the stream, with how often it has been delivered."""
Say = Callable[[str], Awaitable[object]]
"""Writes a sentence to the stream, which goes on."""


class SoughtPlace(NamedTuple):
    """Where to continue, whether that is committed, and what tells the subscriber.

    The group's commit stays where a place is not committed, until a record is done with.
    """

    offset: int
    resets: bool
    say: Callable[[], Awaitable[object]]


class HeldBytes:
    """The memory of the records in flight of all streams."""

    def __init__(self) -> None:
        self.total = 0


class SubscriberRights(NamedTuple):
    """In whose name a subscriber's group and dead letters are changed (None: the broker's own), and
    what he may do."""

    peer: Peer | None = None
    rights: Rights = EVERYTHING


AS_BROKER = SubscriberRights()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTerms:
    """What a stream and the group have agreed on. `tracks`: whether a record has to be
    acknowledged."""

    group: str
    instance: InstanceWindows
    tracks: Callable[[ReadRecord], bool]
    new_window: Callable[[int], PartitionWindow]
    rights: SubscriberRights = AS_BROKER

    @property
    def named_group(self) -> NamedGroup:
        """The group, as its commits name it."""
        return NamedGroup(self.group, self.rights.peer)


@dataclass(slots=True, kw_only=True, eq=False)
class PartitionSubscription:
    """A partition of a stream. `run` delivers until `end`, or until the topic is gone."""

    topic: KnownTopic
    name: TopicPartition
    broker: BrokerSide
    commits: GroupCommits
    reader: FeedCursor
    terms: SubscriptionTerms
    subscriber: LiveSubscriber
    message_bytes_max: str | None = None
    keeps_commit: bool = False
    """It began elsewhere than at the group's commit, which stays until a record is done with: a gap
    is none."""
    all_held: HeldBytes = field(default_factory=HeldBytes)
    window: PartitionWindow = field(init=False)
    _held: dict[int, ReadRecord] = field(default_factory=dict)
    _held_bytes: int = 0
    _held_memory: int = 0  # In bytes, too.
    _dying: list[tuple[int, str]] = field(default_factory=list)
    _dying_due_ms: int = 0
    _committed: int = -1
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[bool] | None = None
    _seek: "asyncio.Future[None] | None" = None
    _seek_to: "SoughtPlace | None" = None
    _has_ended: bool = False

    def __post_init__(self) -> None:
        self._begin(self.reader.position)

    def _begin(self, offset: int) -> None:
        self.window = self.terms.new_window(offset)
        self.terms.instance.add(self.window)
        self._committed = offset
        self.subscriber.position = offset

    async def run(self, write: Write, say: Say) -> None:
        """Deliver. Raises NoSuchTopic if it is gone, CallRefused if its group is Kafka's."""
        try:
            await self._run(write, say)
        finally:
            self._has_ended = True
            self._give_up_seek()

    async def _run(self, write: Write, say: Say) -> None:
        while not self._has_ended:
            self._news.clear()  # First: what comes while we look is not waited for.
            self.commits.check(self.terms.named_group)
            if not self.commits.is_there(self.topic):  # Nobody may read who would notice.
                raise NoSuchTopic(self.topic.kafka_name)
            await self._carry_out_seek()
            for sentence in self.reader.take_passed():
                await say(sentence)
            self.window.expire(monotonic_ms())
            await self._bury()
            again = self.window.take_again(monotonic_ms())
            if again is not None:
                await self._deliver_again(again, write)
            elif self._has_room() and self.reader.peek() is not None:
                await self._deliver(write)
            else:
                await self._wait()

    def end(self) -> None:
        """Deliver no more."""
        self._has_ended = True
        self._news.set()

    async def acknowledged(self, timeout_s: float) -> None:
        """Wait until all that the subscriber has is done with, or for so long. Nothing is delivered
        meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._held:
                    self._news.clear()
                    await self._news.wait()

    async def close(self) -> None:
        """Commit what is done with, and let the rest go."""
        self.terms.instance.remove(self.window)
        await self._stop_reading()
        self._hold_nothing()
        await self.commits.flush(self.terms.group)
        self.reader.close()

    async def seek(self, place: SoughtPlace) -> None:
        """Continue elsewhere, between two deliveries; what is in flight is forgotten.

        One at a time. Raises ValueError if the partition is delivered no more.
        """
        if self._has_ended:
            raise ValueError(GONE)
        self._seek, self._seek_to = asyncio.get_running_loop().create_future(), place
        self._news.set()
        await self._seek

    async def _carry_out_seek(self) -> None:
        if self._seek is None or self._seek_to is None:
            return
        offset, resets, say = self._seek_to
        await self._stop_reading()
        self.terms.instance.remove(self.window)
        self._hold_nothing()
        self._dying.clear()
        self.reader.seek(offset)
        self._begin(offset)
        self.keeps_commit = not resets
        if resets:
            self._note(offset)
        await say()  # Before the first record from there: what came earlier was from elsewhere.
        if not self._seek.done():  # Its caller may be gone.
            self._seek.set_result(None)
        self._seek = None

    def _give_up_seek(self) -> None:
        """Whoever waits for a seek reads acknowledgements of other partitions too."""
        seek, self._seek = self._seek, None
        if seek is not None and not seek.done():
            seek.set_exception(ValueError(GONE))

    def acknowledge(self, offset: int) -> bool:
        """A record is done with. False: it is not with this subscriber."""
        is_done = self.window.acknowledge(offset)
        if is_done:
            self._let_go(offset)
        return is_done

    def release(self, offset: int) -> bool:
        """A record failed. False: it is not with this subscriber."""
        is_released = self.window.release(offset, "its subscriber refused it")
        self._news.set()
        return is_released

    # --- delivering ------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        if not self._held:
            return True  # Whatever others hold, it is a record further after each one.
        is_full = self._held_bytes >= HELD_BYTES_MAX or self.all_held.total >= ALL_HELD_BYTES_MAX
        return self.window.room > 0 and not is_full

    async def _deliver(self, write: Write) -> None:
        record = self.reader.take()
        offset = record.offset
        if not self.terms.tracks(record):
            await write(record, 1)
            self.window.take_done(offset)
            self._note_done()
        else:
            self.window.take(offset, RecordIdentity(record.ts_ns, record.key), monotonic_ms())
            self._held[offset] = record
            self._count_held(record, 1)
            self.terms.instance.delivered(self.window, offset)
            await write(record, 1)
        self.subscriber.received_offset = offset

    async def _deliver_again(self, offset: int, write: Write) -> None:
        self.terms.instance.delivered(self.window, offset)
        await write(self._held[offset], self.window.deliveries(offset))

    async def _bury(self) -> None:
        """Write dead letters; one that cannot be written now is, later."""
        self._dying += self.window.dead()
        if self._dying and monotonic_ms() < self._dying_due_ms:
            return
        while self._dying:
            offset, why = self._dying[0]
            record, deliveries = self._held[offset], self.window.deliveries(offset)
            size = self.message_bytes_max
            letter = DeadLetter(self.name, self.terms.group, record, deliveries, why, size)
            try:
                await write_dead_letter(self.broker, letter, *self.terms.rights)
            except (BrokerError, BufferFull) as error:
                if isinstance(error, BrokerError) and error.code in DENIALS:
                    raise
                self._dying_due_ms = monotonic_ms() + DEAD_LETTER_AGAIN_MS
                return
            del self._dying[0]
            self.window.archive(offset)
            self._let_go(offset)

    def _let_go(self, offset: int) -> None:
        record = self._held.pop(offset)
        self._count_held(record, -1)
        self.terms.instance.settle(RecordIdentity(record.ts_ns, record.key))
        self._note_done()
        self._news.set()

    def _count_held(self, record: ReadRecord, sign: int) -> None:
        memory = record.size_bytes + HELD_RECORD_BYTES
        self._held_bytes += sign * record.size_bytes
        self._held_memory += sign * memory
        self.all_held.total += sign * memory

    def _hold_nothing(self) -> None:
        self._held.clear()
        self.all_held.total -= self._held_memory
        self._held_bytes = self._held_memory = 0

    def _note_done(self) -> None:
        """A record is done with."""
        self.keeps_commit = False
        self._note_commit()

    def _note_commit(self) -> None:
        if self.window.commit > self._committed:
            self._committed = self.subscriber.position = self.window.commit
            self._note(self._committed)

    def _note(self, offset: int) -> None:
        self.commits.note(self.terms.named_group, self.topic, self.name.partition, offset)

    # --- waiting ---------------------------------------------------------------------------------

    async def _wait(self) -> None:
        """For records, acknowledgements, and deliveries that are over."""
        if self._reading is None and self._has_room():
            self._reading = asyncio.create_task(self.reader.wait(READ_WAIT_S))
        news = asyncio.create_task(self._news.wait())
        waiting = {news} if self._reading is None else {news, self._reading}
        due_ms = self.window.due_ms()
        if self._dying:
            due_ms = min(self._dying_due_ms, due_ms or self._dying_due_ms)
        left_s = READ_WAIT_S if due_ms is None else max(0, due_ms - monotonic_ms()) / 1000
        wait_s = min(left_s, READ_WAIT_S)  # Then `run` looks at what tells nobody.
        try:
            await asyncio.wait(waiting, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            if not reading.result():  # A gap may have gone by, or records that it does not want.
                self.window.skip_to(self.reader.position)
                self.keeps_commit &= not self.reader.has_filtered
                if not self.keeps_commit:
                    self._note_commit()

    async def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()  # The next wait meets it again.
