"""Appends the records of publishers, and tells each stream what became of its own.

All streams share two producers, whose batches have records of many: those who want an answer for
each record have one that sends at once. A batch is written whole or not
at all, so that what the broker would refuse a batch for is looked at here, record by record.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import grpc

from smq.agent.answers import Answers, PublishAnswer
from smq.agent.sequences import PublisherName, Sequences, TooOld
from smq.app.agent.refusals import CallRefused, Code, no_topic, refused_by
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.process.clock import monotonic_ms, wall_ms
from smq.client.producing.delivery.delivery_state import Delivery
from smq.client.producing.delivery.futures import BufferFull, Future
from smq.client.producing.producer import Producer
from smq.model.record_types import RecordField

MS_NS = 1_000_000
IN_FLIGHT_MAX = 10_000  # Of one stream; then its publisher waits.
IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
DRAINED_AT_ONCE = 1000  # A few milliseconds.
FORM_BYTES_MAX = 16 * 1024  # By which a message is larger than its batch, for 1,000 headers.
ROOM_THREADS_MAX = 16
_ROOM = ThreadPoolExecutor(ROOM_THREADS_MAX, "room")
"""Publishers wait here for the producers' room, however many they are: in the threads of all other
calls they would hold those up."""
COMPACT = "compact"
KEEPS_APPEND_TIME = "LogAppendTime"

Headers = Sequence[tuple[str, bytes | None]]


class PublishedRecord(NamedTuple):
    """A record as a publisher sends it. `partition`: None lets the key decide, or the producer."""

    value: bytes
    key: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: Headers = ()
    sequence: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of what it has: a record may be nothing but headers."""
        of_headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value) + len(self.key or b"") + of_headers


class PublisherIdentity(NamedTuple):
    """A user, and what he calls his publisher; "" has no sequences."""

    owner: str
    name: str


class SentBefore:
    """The outcome of a record that was sent before."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def done(self) -> bool:
        """It is."""
        return True

    def exception(self) -> None:
        """There is none."""

    def result(self) -> Delivery:
        """Where the record is."""
        return self._delivery

    def add_done_callback(self, function: "Callable[[SentBefore], object]") -> None:
        """Call it now."""
        function(self)


SentRecord: TypeAlias = Future | SentBefore
"""A record that is on its way, or was there already."""
KeptRecord: TypeAlias = "Future | tuple[str, int, int, int]"
"""A record on its way, or the values of its Delivery: plain tuples of these are nothing to the
collector of garbage, which held the loop for 100 ms over half a million objects."""


def invalid(sentence: str) -> CallRefused:
    """A record is refused."""
    return CallRefused(grpc.StatusCode.INVALID_ARGUMENT, sentence, Code.INVALID_RECORD)


class Appender:
    """Appends records of one topic of one publisher. Raises CallRefused for what cannot be."""

    def __init__(
        self,
        producer: Producer,
        topics: KnownTopics,
        topic: KnownTopic,
        publisher: PublisherIdentity,
        sequences: Sequences[KeptRecord],
    ) -> None:
        self._producer, self._topic, self._publisher = producer, topic, publisher
        self._topics = topics
        self._sequences = sequences
        self._loop = asyncio.get_running_loop()
        self._follow(topic.configs)

    def _follow(self, configs: Mapping[str, str]) -> None:
        """Know the configs of now: the broker refuses whole batches, with others' records."""
        self._configs = configs
        topic = self._topic._replace(configs=configs)
        setting, self._fields = partial(self._topics.setting, topic), topic.fields
        self._bytes_max = int(setting("max.message.bytes"))
        self._needs_key = COMPACT in setting("cleanup.policy").split(",")
        self._has_own_times = setting("message.timestamp.type") == KEEPS_APPEND_TIME
        self._before_max_ms = int(setting("message.timestamp.before.max.ms"))
        self._after_max_ms = int(setting("message.timestamp.after.max.ms"))

    def fields(self) -> Sequence[RecordField]:
        """The fields of the topic's records now; none: any. Raises CallRefused if it is gone."""
        self._look()
        return self._fields

    def check_size(self, size_bytes: int) -> None:
        """Of a message that is not parsed yet. Raises CallRefused if no batch of the topic, as it
        is now, takes such a record."""
        self._look()
        if size_bytes > self._bytes_max + FORM_BYTES_MAX:
            sentence = f"a record of {size_bytes} bytes is larger than max.message.bytes of "
            raise CallRefused(
                grpc.StatusCode.INVALID_ARGUMENT, sentence + str(self._topic.name), Code.TOO_LARGE
            )

    async def append(self, record: PublishedRecord) -> "SentRecord":
        """Send a record; waits while the producer has no room."""
        self._check(record)
        await self._make_room(record)  # From here to the end nothing else runs on the loop.
        if record.sequence is None or not self._publisher.name:
            return self._send(record)
        name = self._named(record)
        try:
            sent = self._sequences.once(name, record.sequence, lambda: self._send(record))
        except TooOld as error:
            raise invalid(str(error)) from error
        if isinstance(sent, tuple):
            return SentBefore(Delivery(*sent))
        sent.add_done_callback(partial(self._settle, name, record.sequence))
        return sent

    def _named(self, record: PublishedRecord) -> PublisherName:
        partition = -1 if record.partition is None else record.partition
        return PublisherName(*self._publisher, self._topic.id, partition)

    def _settle(self, name: PublisherName, sequence: int, sent: Future) -> None:
        """By the producer's thread, before the stream is told. A record's future has its bytes."""
        if self._loop.is_closed():
            return
        if sent.exception() is not None:
            self._loop.call_soon_threadsafe(self._sequences.forget, name, sequence, sent)
        else:
            found = sent.result()
            outcome = found.topic, found.partition, found.offset, found.timestamp_ms
            self._loop.call_soon_threadsafe(self._sequences.settle, name, sequence, sent, outcome)

    async def _make_room(self, record: PublishedRecord) -> None:
        room = self._topic.kafka_name, record.value, record.key
        while self._producer.must_wait(*room):
            with suppress(BufferFull):  # Its publisher waits with us, however long.
                await self._loop.run_in_executor(_ROOM, self._producer.wait_for_room, *room)

    def _send(self, record: PublishedRecord) -> Future:
        return self._producer.send(
            self._topic.kafka_name,
            record.value,
            key=record.key,
            headers=record.headers or None,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
        )

    def _look(self) -> None:
        """Raises CallRefused if the topic is gone."""
        configs = self._topics.configs_of(self._topic)
        if configs is None:  # Another one may have its name.
            raise no_topic(self._topic.name)
        if configs is not self._configs:
            self._follow(configs)

    def _check(self, record: PublishedRecord) -> None:
        self._look()
        if self._needs_key and record.key is None:
            raise invalid(f"topic {self._topic.name} is compacted: its records need a key")
        if self._has_own_times:
            return
        ahead_ms = record.timestamp_ms - wall_ms()
        if ahead_ms > self._after_max_ms or -ahead_ms > self._before_max_ms:
            raise invalid(
                f"the time {record.timestamp_ms} ms is further from the broker's than the topic "
                "allows (message.timestamp.after.max.ms, message.timestamp.before.max.ms)"
            )


@dataclass(slots=True)
class _Sent:
    """A record on its way; without a future it is a refusal or a mark, whose answer is there."""

    answer: PublishAnswer
    future: "SentRecord | None" = None
    bytes: int = 0


class PublishStream:
    """The records of a publisher's stream, and its answers.

    Records are answered in the order in which they came. Writing waits for the publisher to read,
    and nothing else does.
    """

    def __init__(self, interval: int, acked: Callable[[PublishAnswer], object]) -> None:
        self._answers = Answers(interval)
        self._acked = acked
        self._sent: deque[_Sent] = deque()
        self._bytes = 0
        self._is_armed = self._is_draining = self._has_ended = False
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, future: SentRecord, tag: int, sequence: int | None, size_bytes: int) -> None:
        """A record is on its way."""
        self._sent.append(_Sent(PublishAnswer(tag, count=1, sequence=sequence), future, size_bytes))
        self._bytes += size_bytes
        self._arm()

    def refuse(self, refused: CallRefused, tag: int, sequence: int | None) -> None:
        """A record is refused; the stream goes on without it."""
        error, code = refused.sentence, refused.code
        self._sent.append(
            _Sent(PublishAnswer(tag, sequence=sequence, error=error, error_code=code))
        )
        self._drain()

    def mark(self, tag: int) -> None:
        """The publisher wants to know when all that it has sent so far is done."""
        self._sent.append(_Sent(PublishAnswer(tag)))
        self._drain()

    async def has_room(self) -> None:
        """Wait until the stream has few enough records on their way."""
        while len(self._sent) >= IN_FLIGHT_MAX or self._bytes >= IN_FLIGHT_BYTES_MAX:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """No more records come."""
        self._has_ended = True
        self._news.set()

    async def answer(self, write: Callable[[PublishAnswer], Awaitable[object]]) -> None:
        """Write answers as they are due, until all records of an ended stream are answered."""
        while True:
            answer = self._answers.take(monotonic_ms())
            if answer is not None:
                await write(answer)
            elif not self._has_ended or self._sent:
                await self._wait()
            elif len(self._answers):
                self._answers.flush()
            else:
                return

    async def _wait(self) -> None:
        self._news.clear()
        due_ms = self._answers.due_ms()
        wait_s = None if due_ms is None else max(0, due_ms - monotonic_ms()) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def _arm(self) -> None:
        """Be told when the last record that is not done is: those before it mostly are, too.

        One that is done would ring at once, and again, for as long as one before it is not: of
        another partition, whose shard may be stopped.
        """
        if self._is_armed or self._is_draining:
            return
        if self._has_done():  # It was when it was added.
            self._drain_soon()
            return
        futures = (each.future for each in reversed(self._sent) if each.future is not None)
        future = next((each for each in futures if not each.done()), None)
        if future is not None:
            self._is_armed = True
            future.add_done_callback(self._ring)

    def _ring(self, _: SentRecord) -> None:
        """By the producer's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung)

    def _rung(self) -> None:
        self._is_armed = False
        self._drain()
        self._arm()

    def _drain(self) -> None:
        """Answer what is done, in order."""
        now_ms, left = monotonic_ms(), DRAINED_AT_ONCE
        while self._has_done():
            if not left:
                self._drain_soon()
                break
            left -= 1
            sent = self._sent.popleft()
            self._bytes -= sent.bytes
            if sent.future is not None:
                _fill(sent.answer, sent.future)
            self._acked(sent.answer)
            self._answers.add(sent.answer, now_ms)
        self._news.set()
        self._room.set()

    def _has_done(self) -> bool:
        """Whether the next record to be answered is done."""
        return bool(self._sent) and (self._sent[0].future is None or self._sent[0].future.done())

    def _drain_soon(self) -> None:
        """Answer more once others had a turn: ten thousand records may be done at once."""
        if not self._is_draining:
            self._is_draining = True
            self._loop.call_soon(self._drain_on)

    def _drain_on(self) -> None:
        self._is_draining = False
        self._drain()
        self._arm()


def _fill(answer: PublishAnswer, future: SentRecord) -> None:
    """Say what became of a record."""
    error = future.exception()
    if error is None:
        delivery = future.result()
        answer.base_offset = answer.last_offset = delivery.offset
        answer.partition = delivery.partition
        return
    refused = refused_by(error)
    answer.count, answer.error, answer.error_code = 0, refused.sentence, refused.code
