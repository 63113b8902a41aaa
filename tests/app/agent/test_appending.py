"""A publisher's stream: answers in order, bounded reading, records that are refused before sent."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from smq.agent.answers import PublishAnswer
from smq.agent.layouts import RingLayout
from smq.agent.sequences import Sequences
from smq.agent.topic_names import TopicName
from smq.app.agent import appending
from smq.app.agent.appending import (
    FORM_BYTES_MAX,
    ROOM_THREADS_MAX,
    Appender,
    PublishedRecord,
    PublisherIdentity,
    PublishStream,
    SentBefore,
    invalid,
)
from smq.app.agent.refusals import CallRefused
from smq.app.agent.topics import KnownTopic
from smq.app.process.clock import wall_ms
from smq.client.errors import RecordTooLarge
from smq.client.producing.delivery.delivery_state import Delivery

TOPIC = KnownTopic(TopicName("shop", "orders"), UUID(int=1), {}, (RingLayout(1, 2),))
ONE, NAMELESS = PublisherIdentity("User:a", "p"), PublisherIdentity("User:a", "")
DEFAULTS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1000000",
}


class Sent:
    """A record's future, resolved by the test."""

    def __init__(self) -> None:
        self.found: Delivery | Exception | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def resolve(self, found: Delivery | Exception) -> None:
        self.found = found
        for each in self._callbacks:
            each(self)

    def done(self) -> bool:
        return self.found is not None

    def exception(self) -> Exception | None:
        return self.found if isinstance(self.found, Exception) else None

    def result(self) -> Delivery:
        assert isinstance(self.found, Delivery)
        return self.found

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        self._callbacks.append(function)
        if self.done():
            function(self)


class Producer:
    """Takes records, and has no room for as long as the test says."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.full = 0

    def must_wait(self, *_: object) -> bool:
        return self.full > 0

    def wait_for_room(self, *_: object) -> None:
        self.full -= 1

    def send(self, *_: object, **__: object) -> Sent:
        self.sent.append(Sent())
        return self.sent[-1]


class Topics:
    def __init__(self, **configs: str) -> None:
        self.has_gone = False
        self.change(**configs)

    def change(self, **configs: str) -> None:
        self._configs = DEFAULTS | {key.replace("_", "."): each for key, each in configs.items()}

    def setting(self, _: KnownTopic, name: str) -> str:
        return self._configs[name]

    def configs_of(self, topic: KnownTopic) -> Mapping[str, str] | None:
        return self._configs if topic is TOPIC and not self.has_gone else None


def record(**rest: Any) -> PublishedRecord:
    fields: dict[str, Any] = {"value": b"v", "key": None, "partition": 0}
    return PublishedRecord(**(fields | {"timestamp_ms": wall_ms()} | rest))


def appender(producer: Producer, sequences: Sequences[Any], **configs: str) -> Appender:
    return Appender(producer, Topics(**configs), TOPIC, ONE, sequences)  # type: ignore[arg-type]


def delivered(offset: int) -> Delivery:
    return Delivery("t", 0, offset, 1)


def test_records_of_a_topic_that_has_gone_are_refused() -> None:
    async def talk() -> None:
        producer, topics = Producer(), Topics()
        mine = Appender(producer, topics, TOPIC, NAMELESS, Sequences[Any]())  # type: ignore[arg-type]
        await mine.append(record())
        topics.has_gone = True
        with pytest.raises(CallRefused, match="there is no topic shop/orders"):
            await mine.append(record())
        assert len(producer.sent) == 1

    asyncio.run(talk())


def test_a_message_is_too_large_by_the_config_of_now() -> None:
    async def talk() -> None:
        topics = Topics()
        mine = Appender(Producer(), topics, TOPIC, NAMELESS, Sequences[Any]())  # type: ignore[arg-type]
        mine.check_size(1_000_000)
        topics.change(max_message_bytes="5000")
        mine.check_size(5000 + FORM_BYTES_MAX)
        with pytest.raises(CallRefused, match="a record of 1000000 bytes is larger"):
            mine.check_size(1_000_000)

    asyncio.run(talk())


def test_records_are_judged_by_the_configs_of_now() -> None:
    async def talk() -> None:
        producer, topics = Producer(), Topics()
        mine = Appender(producer, topics, TOPIC, NAMELESS, Sequences[Any]())  # type: ignore[arg-type]
        await mine.append(record())
        topics.change(cleanup_policy="compact")
        with pytest.raises(CallRefused, match="its records need a key"):
            await mine.append(record())
        assert len(producer.sent) == 1

    asyncio.run(talk())


def test_records_are_answered_in_order_whenever_they_are_done() -> None:
    async def talk() -> None:
        acked: list[int] = []
        stream = PublishStream(1, lambda answer: acked.append(answer.tag))
        one, three = Sent(), Sent()
        stream.add(one, 1, None, 1)  # type: ignore[arg-type]
        stream.refuse(invalid("bad"), 2, None)
        stream.add(three, 3, None, 1)  # type: ignore[arg-type]
        stream.mark(4)
        answers: list[PublishAnswer] = []

        async def write(answer: PublishAnswer) -> None:
            answers.append(answer)

        three.resolve(RecordTooLarge("too large"))
        await asyncio.sleep(0)
        assert acked == []
        one.resolve(delivered(7))
        stream.end()
        async with asyncio.timeout(10):
            await stream.answer(write)
        assert [(each.tag, each.last_offset, each.error_code) for each in answers] == [
            (1, 7, 0),
            (2, -1, 42),
            (3, -1, 10),
            (4, -1, 0),
        ]
        assert acked == [1, 2, 3, 4]

    asyncio.run(talk())


def test_a_stream_has_no_room_beyond_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "IN_FLIGHT_MAX", 2)

    async def talk() -> None:
        stream = PublishStream(1, lambda _: None)
        sent = [Sent(), Sent()]
        for tag, each in enumerate(sent):
            await stream.has_room()
            stream.add(each, tag, None, 1)  # type: ignore[arg-type]
        waiting = asyncio.create_task(stream.has_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        for each in sent:
            each.resolve(delivered(1))
        async with asyncio.timeout(10):
            await waiting

    asyncio.run(talk())


def test_a_stream_sleeps_while_a_record_before_others_that_are_done_is_not() -> None:
    """One loop span for as long as one of two shards was stopped."""

    async def talk() -> None:
        stream, rung = PublishStream(1, lambda _: None), list[int]()
        was_rung = stream._rung

        def ring() -> None:
            rung.append(1)
            was_rung()

        stream._rung = ring  # type: ignore[method-assign]
        first, slow, last = Sent(), Sent(), Sent()
        for tag, each in enumerate((first, slow, last)):
            stream.add(each, tag, None, 1)  # type: ignore[arg-type]
        for each in (first, last, slow):
            each.resolve(delivered(1))
            for _ in range(100):
                await asyncio.sleep(0)
        assert len(rung) == 3
        assert len(stream._answers) == 3

    asyncio.run(talk())


def test_a_record_that_was_sent_before_is_answered_though_others_are_on_their_way() -> None:
    async def talk() -> None:
        stream, before = PublishStream(1, lambda _: None), SentBefore(delivered(7))
        for each in (before, Sent(), before):
            stream.add(each, 1, None, 1)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(stream._answers) == 1
        assert len(stream._sent) == 2

    asyncio.run(talk())


def test_many_records_that_are_done_at_once_leave_the_loop_to_others_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appending, "DRAINED_AT_ONCE", 10)

    async def talk() -> None:
        stream, sent = PublishStream(1, lambda _: None), [Sent() for _ in range(45)]
        for tag, each in enumerate(sent):
            stream.add(each, tag, None, 1)  # type: ignore[arg-type]
        for each in sent:
            each.found = delivered(1)
        stream.end()
        stream._rung()
        answered = [len(stream._answers)]
        while answered[-1] < 45:
            await asyncio.sleep(0)
            answered.append(len(stream._answers))
        assert answered == [10, 20, 30, 40, 45]
        await stream.has_room()
        assert not stream._sent

    asyncio.run(talk())


def test_a_record_of_nothing_but_headers_takes_room() -> None:
    found = record(value=b"ab", key=b"c", headers=[("grün", b"1234"), ("k", None)])
    assert found.size_bytes == 2 + 1 + 4 + 4 + 1
    assert record(value=b"").size_bytes == 0


def test_a_record_that_would_fail_its_neighbours_is_refused_before_it_is_sent() -> None:
    async def talk() -> None:
        producer, sequences = Producer(), Sequences[Any]()
        compacted = appender(producer, sequences, cleanup_policy="compact,delete")
        with pytest.raises(CallRefused, match="need a key"):
            await compacted.append(record())
        await compacted.append(record(key=b"k"))
        early = appender(producer, sequences, **{"message.timestamp.before.max.ms": "1000"})
        for timestamp_ms in (wall_ms() + 10**7, wall_ms() - 10**7):
            with pytest.raises(CallRefused, match="further from the broker's"):
                await early.append(record(timestamp_ms=timestamp_ms))
        own = appender(producer, sequences, message_timestamp_type="LogAppendTime")
        await own.append(record(timestamp_ms=0))
        assert len(producer.sent) == 2

    asyncio.run(talk())


def test_a_publisher_waits_for_room_and_its_record_is_sent_then() -> None:
    async def talk() -> None:
        producer = Producer()
        producer.full = 2
        await appender(producer, Sequences[Any]()).append(record())
        assert (producer.full, len(producer.sent)) == (0, 1)

    asyncio.run(talk())


def test_a_number_that_failed_may_be_sent_again_and_one_that_did_not_is_not() -> None:
    async def talk() -> None:
        producer = Producer()
        door = appender(producer, Sequences[Any](kept_max=2))
        first: Any = await door.append(record(sequence=1))
        second: Any = await door.append(record(sequence=1))
        assert second is first
        first.resolve(RecordTooLarge("no"))
        await asyncio.sleep(0)
        again: Any = await door.append(record(sequence=1))
        assert again is not first
        again.resolve(delivered(9))
        await asyncio.sleep(0)
        known = await door.append(record(sequence=1))
        assert (known.done(), known.result().offset) == (True, 9)
        for number in (2, 3):
            await door.append(record(sequence=number))
        with pytest.raises(CallRefused, match="below the 2 newest"):
            await door.append(record(sequence=1))
        assert len(producer.sent) == 4

    asyncio.run(talk())


def test_publishers_who_wait_for_room_leave_the_threads_to_other_calls() -> None:
    free = threading.Event()

    class FullProducer(Producer):
        def must_wait(self, *_: object) -> bool:
            return not free.is_set()

        def wait_for_room(self, *_: object) -> None:
            free.wait(30)

    async def talk() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        producer = FullProducer()
        waiting = [
            asyncio.create_task(appender(producer, Sequences[Any]()).append(record()))
            for _ in range(2 * ROOM_THREADS_MAX)
        ]
        try:
            async with asyncio.timeout(20):
                await asyncio.sleep(0)
                await asyncio.to_thread(len, ())
                assert producer.sent == []
        finally:
            free.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*waiting)
        assert len(producer.sent) == len(waiting)

    asyncio.run(talk())
