"""Fetches that go wrong in every way, and records that come all the same, once and in order."""

import select
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from smq.client.consuming.batch.chunk import PollRoom, cut
from smq.client.consuming.source import wire_source
from smq.client.consuming.source.beginnings import Beginnings
from smq.client.consuming.source.source import Partition
from smq.client.consuming.source.wire_source import WireSource
from smq.client.errors import BrokerUnavailable, NoSuchTopic
from smq.client.kafka.cluster import PASSING, Cluster
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.offsets import EARLIEST
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.stepped_clock import SteppedClock
from smq.wire.records import Record
from tests.client import fake_kafka
from tests.client.fake_kafka import FakeKafka

DEADLINE_SECONDS = 10


def fill(kafka: FakeKafka, first: int, count: int, partitions: int = 2) -> None:
    """Numbered records, three to a batch, in turns."""
    for partition in range(partitions):
        numbers = [n for n in range(first, first + count) if n % partitions == partition]
        for at in range(0, len(numbers), 3):
            records = [Record(i, 0, None, b"%d" % n) for i, n in enumerate(numbers[at : at + 3])]
            kafka.append("a", partition, records)


@pytest.fixture
def source(cluster: Cluster) -> Iterator[WireSource]:
    source = WireSource(cluster, 1 << 20, DEADLINE_SECONDS, Beginnings(cluster, EARLIEST))
    yield source
    source.close()


def partitions(*positions: int) -> list[Partition]:
    return [Partition(TopicPartition("a", i), each) for i, each in enumerate(positions)]


def step(source: WireSource) -> list[int]:
    """What one look gives; the partitions move on."""
    found = []
    for taken in source.take():
        chunks, good = cut(taken.batches, PollRoom(64 << 20))
        taken.commit(good)
        for partition, position in taken.ends:
            partition.position = position
        found += [int(bytes(r.value or b"")) for chunk in chunks for r in chunk.records()]
    poll = select.poll()
    for fileno in source.filenos():
        poll.register(fileno, select.POLLIN)
    poll.poll(20)
    return found


def read(source: WireSource, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += step(source)
    return sorted(found)


def test_records_of_several_brokers_come_as_they_are_ready(
    kafka: FakeKafka, source: WireSource
) -> None:
    kafka.add_topic("a", 2)
    wanted = partitions(0, 3)
    assert source.add(wanted) == []
    fill(kafka, 0, 20)
    assert read(source, 17) == [0, 2, 4, 6, *range(7, 20)]
    assert [each.position for each in wanted] == [10, 10]
    fill(kafka, 20, 4)
    assert read(source, 4) == [20, 21, 22, 23]
    assert source.leave() == []


@pytest.mark.parametrize("fault", ["close", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_fetch_with_a_passing_error_is_repeated(
    kafka: FakeKafka, source: WireSource, fault: ErrorCode | str
) -> None:
    (_, second) = kafka.add_topic("a", 2)
    fill(kafka, 0, 20)
    source.add(partitions(0, 0))
    for _ in range(3):
        kafka.faults["Fetch"] += [fault, ErrorCode.NONE, fault]
        second.leader = 3 - second.leader
    assert read(source, 20) == list(range(20))


def test_a_look_that_is_interrupted_is_begun_again(
    kafka: FakeKafka, source: WireSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.add_topic("a")
    fill(kafka, 0, 9, 1)
    source.add(partitions(0))
    whole = KafkaConnection._receive_exactly
    pieces = count()

    def interrupted(connection: KafkaConnection, size: int) -> memoryview:
        data = whole(connection, size)
        if next(pieces) % 2:
            raise KeyboardInterrupt
        return data

    monkeypatch.setattr(KafkaConnection, "_receive_exactly", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(source, 9)
    monkeypatch.undo()
    assert read(source, 9) == [*range(9)]


def test_a_position_that_is_no_longer_wanted_is_passed_over(
    kafka: FakeKafka, source: WireSource
) -> None:
    kafka.add_topic("a", 2)
    fill(kafka, 0, 20)
    wanted = partitions(0, 0)
    source.add(wanted)
    source.take()
    wanted[0].position, wanted[1].position = 9, 8
    assert read(source, 3) == [17, 18, 19]
    source.remove(wanted[0])
    fill(kafka, 20, 2)
    assert read(source, 1) == [21]
    assert len(source) == 1


def test_a_new_partition_does_not_wait_for_the_others(
    kafka: FakeKafka, source: WireSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_kafka, "LONG_POLL_SECONDS_MAX", 5.0)
    monkeypatch.setattr(wire_source, "FETCH_WAIT_MS", 5000)
    for each in kafka.add_topic("a", 2):
        each.leader = 1
    fill(kafka, 0, 20)
    first, second = partitions(10, 0)
    source.add([first])
    step(source)
    started = time.monotonic()
    source.add([second])
    assert read(source, 10) == list(range(1, 20, 2))
    assert time.monotonic() - started < 4


def test_partitions_that_are_always_busy_leave_room_for_others(
    kafka: FakeKafka, source: WireSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_only(fake: FakeKafka, node: int, request: Any, code: ErrorCode) -> Any:
        """An answer that is full when one partition has given its records."""
        answer = FakeKafka.fetch(fake, node, request, code)
        given = [each for topic in answer.responses for each in topic.partitions if each.records]
        for each in given[1:]:
            each.records = b""
        return answer

    monkeypatch.setitem(fake_kafka.HANDLERS, "Fetch", first_only)
    for each in kafka.add_topic("a", 3):
        each.leader = 1
    kafka.append("a", 2, [Record(0, 0, None, b"2")])
    source.add(partitions(0, 0, 0))
    found: list[int] = []
    for _ in range(8):
        for busy in range(2):
            kafka.append("a", busy, [Record(0, 0, None, b"%d" % busy)])
        found += step(source)
    assert {0, 1, 2} <= set(found)


def test_an_offset_that_is_not_there_is_asked_about(kafka: FakeKafka, source: WireSource) -> None:
    kafka.add_topic("a", 2)
    fill(kafka, 0, 20)
    source.add(partitions(99, 10))
    assert read(source, 10) == list(range(0, 20, 2))


def test_an_answer_that_is_cut_is_taken_as_far_as_it_goes(
    kafka: FakeKafka, source: WireSource
) -> None:
    (partition,) = kafka.add_topic("a", 1)
    fill(kafka, 0, 6, partitions=1)
    whole = partition.from_offset
    partition.from_offset = lambda offset: whole(offset)[: -10 if offset == 0 else None]  # type: ignore[method-assign]
    source.add(partitions(0))
    assert read(source, 3) == [0, 1, 2]
    assert read(source, 3) == [3, 4, 5]


def test_fetched_bytes_that_are_no_batch_raise_peer_error(
    kafka: FakeKafka, source: WireSource
) -> None:
    (partition,) = kafka.add_topic("a", 1)
    fill(kafka, 0, 3, partitions=1)
    answer = partition.batches[0][:16] + b"\x07" + partition.batches[0][17:]
    partition.from_offset = lambda offset: answer  # type: ignore[method-assign]
    source.add(partitions(0))
    with pytest.raises(PeerError, match="no record batch"):
        read(source, 1)


def test_a_deleted_topic_raises_no_such_topic(kafka: FakeKafka, source: WireSource) -> None:
    kafka.add_topic("a", 1)
    source.add(partitions(0))
    source.take()
    for api in ("Fetch", "Metadata"):
        kafka.faults[api] += [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 9
    with pytest.raises(NoSuchTopic):
        read(source, 1)


@pytest.mark.parametrize("fetch_version", [12, 18])
def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    kafka: FakeKafka, source: WireSource, fetch_version: int
) -> None:
    kafka.last_versions["Fetch"] = fetch_version
    kafka.add_topic("a", 1)
    kafka.add_topic("b", 1)
    fill(kafka, 0, 4, partitions=1)
    wanted = [*partitions(0), Partition(TopicPartition("b", 0), 0)]
    source.add(wanted)
    assert read(source, 4) == [*range(4)]
    kafka.delete_topic("a")
    with pytest.raises(NoSuchTopic):
        read(source, 1)
    kafka.add_topic("a", 1)
    fill(kafka, 10, 6, partitions=1)
    assert read(source, 6) == [*range(10, 16)]
    kafka.append("b", 0, [Record(0, 0, None, b"20")])
    assert read(source, 1) == [20]


def test_a_topic_that_is_created_again_behind_our_back_is_not_read_on(
    kafka: FakeKafka, source: WireSource
) -> None:
    kafka.add_topic("a", 1)
    fill(kafka, 0, 4, partitions=1)
    wanted = partitions(0)
    source.add(wanted)
    assert read(source, 4) == [*range(4)]
    kafka.delete_topic("a")
    kafka.add_topic("a", 1)
    fill(kafka, 10, 6, partitions=1)
    assert read(source, 6) == [*range(10, 16)]


def test_a_topic_that_is_missing_does_not_hold_up_the_others(
    kafka: FakeKafka, source: WireSource
) -> None:
    kafka.add_topic("a", 1)
    kafka.add_topic("b", 1)
    (a,), b = partitions(0), Partition(TopicPartition("b", 0), 0)
    source.add([b, a])
    source.take()
    kafka.delete_topic("b")
    told = 0
    for first in range(0, 9, 3):
        fill(kafka, first, 3, partitions=1)
        found: list[int] = []
        while len(found) < 3 or not told:
            try:
                found += step(source)
            except NoSuchTopic:
                told += 1
        assert found == [first, first + 1, first + 2]
    source.remove(b)
    fill(kafka, 9, 3, partitions=1)
    assert read(source, 3) == [9, 10, 11], "nobody is told of what he does not read"


@pytest.mark.parametrize(
    "error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
@pytest.mark.parametrize("leaders", [(1, 1), (1, 2), (2, 1)])
def test_a_partition_that_fails_does_not_hold_up_the_others(
    kafka: FakeKafka, source: WireSource, error: ErrorCode, leaders: tuple[int, int]
) -> None:
    """Found by the simulator (seed 13240): all that was read with it was thrown away, again and
    again, as long as a disk did not give its page."""
    (bad, good) = kafka.add_topic("a", 2)
    bad.leader, good.leader = leaders
    bad.fetch_error = error
    source.add(partitions(0, 0))
    told, found = list[ErrorCode](), list[int]()

    def look() -> None:
        try:
            found.extend(step(source))
        except BrokerError as raised:
            told.append(raised.code)

    deadline = time.monotonic() + DEADLINE_SECONDS
    for first in range(0, 30, 10):
        fill(kafka, first, 10)
        while len(found) < (first + 10) // 2 or (not told and error not in PASSING):
            assert time.monotonic() < deadline, found
            look()
    assert found == [*range(1, 30, 2)]
    assert {*told} == {error} - PASSING
    bad.fetch_error = ErrorCode.NONE
    while len(found) < 30:
        assert time.monotonic() < deadline, found
        look()
    assert sorted(found) == [*range(30)]


def test_a_refusal_that_lasts_is_raised_beside_a_busy_partition(
    kafka: FakeKafka, source: WireSource
) -> None:
    clock = source._clock = SteppedClock(100 * 10**9)
    (bad, good) = kafka.add_topic("a", 2)
    good.leader = bad.leader
    bad.fetch_error = ErrorCode.KAFKA_STORAGE_ERROR
    refused, read_on = partitions(0, 0)
    source.add([refused, read_on])
    told, found = 0, list[int]()
    deadline = time.monotonic() + DEADLINE_SECONDS
    for first in range(0, 10_000, 4):
        assert time.monotonic() < deadline, (told, found)
        fill(kafka, first, 4)
        clock.step(0.5)
        try:
            found += step(source)
        except BrokerError as raised:
            told += raised.code == ErrorCode.KAFKA_STORAGE_ERROR
        if told == 2:
            break
    assert len(found) > 20
    while source._untold is None:
        clock.step(0.5)
        fill(kafka, first := first + 4, 4)
        step(source)
    source.remove(refused)
    fill(kafka, first + 4, 4)
    assert read(source, 2), "nobody is told of what he does not read"


class Late(FakeKafka):
    """A network that holds node 1's answers to fetches back."""

    def __init__(self) -> None:
        self.is_made, self.may_go = threading.Event(), threading.Event()
        super().__init__(node_count=2)

    def _answer(self, node_id: int, data: bytes) -> bytes | None:
        answer = super()._answer(node_id, data)
        if node_id == 1 and data[:2] == b"\0\1":
            self.is_made.set()
            self.may_go.wait(DEADLINE_SECONDS)
        return answer


@pytest.mark.parametrize("answer", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_partition_that_moves_is_asked_of_its_new_leader_only(answer: ErrorCode) -> None:
    with (
        closing(Late()) as kafka,
        Cluster(kafka.bootstrap, deadline_seconds=5) as cluster,
        closing(WireSource(cluster, 1 << 20, 10, Beginnings(cluster, EARLIEST))) as source,
    ):
        (moving, refused) = kafka.add_topic("a", 2)
        fill(kafka, 0, 5, 1)
        moving.fetch_error, refused.fetch_error = answer, ErrorCode.NOT_LEADER_OR_FOLLOWER
        source.add(partitions(0, 0))
        assert step(source) == []
        assert kafka.is_made.wait(DEADLINE_SECONDS)
        moving.leader, moving.fetch_error = 2, ErrorCode.NONE
        deadline = time.monotonic() + DEADLINE_SECONDS
        while TopicPartition("a", 0) not in (source._fetches[2].asked or ()):
            assert time.monotonic() < deadline
            assert source.take() == []
        kafka.may_go.set()
        # Both answers are there, if both were waited for.
        while not all(select.select([fileno], [], [], 5)[0] for fileno in source.filenos()):
            assert time.monotonic() < deadline
        assert read(source, 5) == [*range(5)]
        assert step(source) == []


def test_brokers_without_ids_of_topics_are_asked_by_name(
    kafka: FakeKafka, source: WireSource, cluster: Cluster
) -> None:
    kafka.last_versions["Metadata"] = 9
    cluster.forget()
    kafka.add_topic("a", 1)
    fill(kafka, 0, 4, partitions=1)
    source.add(partitions(0))
    assert read(source, 4) == [*range(4)]
    kafka.delete_topic("a")
    kafka.add_topic("a", 1)
    fill(kafka, 10, 3, partitions=1)
    assert read(source, 3) == [10, 11, 12], "the position is not there"


def test_a_lasting_error_is_raised_and_the_fetch_repeated_later(
    kafka: FakeKafka, source: WireSource
) -> None:
    source._clock = SteppedClock(100 * 10**9)
    kafka.add_topic("a", 1)
    kafka.faults["Fetch"] += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 9
    source.add(partitions(0))
    fill(kafka, 0, 1, partitions=1)
    with pytest.raises(BrokerError) as raised:
        read(source, 1)
    assert raised.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert source.retry_in_seconds() > 0
    assert source.filenos() == []
    assert source.take() == []


def test_a_failure_is_over_when_nothing_is_read_any_more(
    kafka: FakeKafka, source: WireSource
) -> None:
    clock = source._clock = SteppedClock(100 * 10**9)
    kafka.add_topic("a", 1)
    (partition,) = partitions(0)
    for _ in range(3):
        clock.step(100)
        kafka.faults["Fetch"] += [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        source.add([partition])
        while not source.retry_in_seconds():
            assert step(source) == []
        source.remove(partition)  # It goes back to its ring.


def test_a_caller_that_pauses_does_not_make_a_failure_longer(
    kafka: FakeKafka, source: WireSource
) -> None:
    clock = source._clock = SteppedClock(100 * 10**9)
    kafka.add_topic("a", 1)
    source.add(partitions(0))
    for _ in range(3):
        kafka.faults["Fetch"] += [ErrorCode.UNKNOWN_TOPIC_ID]
        while not source.retry_in_seconds():
            assert step(source) == []
        clock.step(100)


def test_a_broker_that_is_there_again_may_say_that_a_topic_has_another_id(
    kafka: FakeKafka, source: WireSource
) -> None:
    """Found by the simulator (seed 6895): after a failure of some seconds it was raised at once,
    though the next question would have been for the new id."""
    clock = source._clock = SteppedClock(100 * 10**9)
    kafka.add_topic("a", 1)
    source.add(partitions(0))
    source._deadline_seconds = 5
    for error in [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 6 + [ErrorCode.UNKNOWN_TOPIC_ID]:
        kafka.faults["Fetch"] += [error]
        while not source.retry_in_seconds():
            assert step(source) == []
        clock.step(1)
    fill(kafka, 0, 1, partitions=1)
    assert read(source, 1)


def test_an_unreachable_broker_raises_after_the_deadline(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.add_topic("a", 1)
    source = WireSource(cluster, 1 << 20, 0.3, Beginnings(cluster, EARLIEST))
    source.add(partitions(0))
    source.take()
    kafka.close()
    started = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        read(source, 1)
    assert time.monotonic() - started > 0.25


@pytest.mark.parametrize("base_offsets", [(0, 0), (3, 0), (0, 2), (-3, 0), (0, 2**63 - 3)])
def test_batches_whose_offsets_do_not_grow_raise_peer_error(
    kafka: FakeKafka, source: WireSource, base_offsets: tuple[int, int]
) -> None:
    """Of the kind of door fault 12: their records were read twice, or from beyond the last
    offset, and the next fetch ended with a struct.error."""
    (partition,) = kafka.add_topic("a", 1)
    fill(kafka, 0, 6, partitions=1)
    answer = b"".join(
        base.to_bytes(8, "big", signed=True) + batch[8:]
        for base, batch in zip(base_offsets, partition.batches, strict=True)
    )
    partition.from_offset = lambda offset: answer  # type: ignore[method-assign]
    source.add(partitions(0))
    with pytest.raises(PeerError, match="offsets that do not grow"):
        read(source, 1)
