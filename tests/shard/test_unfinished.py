"""Requests that would hold the loop are finished in steps: a little of each in every turn."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shm.kernels.base.words import (
    COUNTER_PRODUCE_REQUESTS,
    DURABILITY_DISK,
    DURABILITY_OS,
    FLAG_CLOSED,
    P_FLAGS,
    STEP_BYTES,
)
from smq.model.errors import ErrorCode, PeerError
from smq.model.now import Now
from smq.shard import recompression, validation
from smq.shard.checks import TurnRoom
from smq.shard.produce import Mark, Produced
from smq.shard.references import References
from smq.shard.shard import Shard
from smq.shard.unfinished import HOLD_MS, HeldBack, Unfinished
from smq.shard.validation import LOOP_BYTES_MAX, Validation
from smq.wire.compression import Codec, InflatesTooFar, decompress
from smq.wire.generated.produce import PartitionProduceResponse
from smq.wire.records import Record, write_batch
from tests.shard.shard_bench import (
    NOW,
    NOW_MS,
    Producer,
    batch,
    catalog,
    new_shard,
    produce_request,
    responses,
    topic,
)
from tests.shard.test_references import FakePayloads

COMPACTED = {"cleanup.policy": "compact"}
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MANY = 30
LARGE = 2 * LOOP_BYTES_MAX


def keyed(size: int, codec: Codec = Codec.GZIP) -> bytes:
    """A batch of one record that inflates to more than so many bytes."""
    return bytes(write_batch([Record(0, NOW_MS, b"key", bytes(size))], compression=codec))


def rows(answers: bytes) -> list[PartitionProduceResponse]:
    return [
        row
        for _, response in responses(answers)
        for each in response.responses
        for row in each.partition_responses
    ]


def new_producer(shard: Shard) -> Producer:
    room = TurnRoom()
    references = References(FakePayloads(), shard.topic_of, shard.config, room)
    return Producer(shard, Validation(references, shard.topic_of, shard.config, room))


class Inflated:
    """What is inflated while it runs, but not by jobs."""

    def __init__(self) -> None:
        self.bytes, self.most, self.is_job = 0, 0, False

    def decompress(self, codec: int, data: Any, bytes_max: int) -> Any:
        try:
            inflated = decompress(codec, data, bytes_max)
        except InflatesTooFar:
            self._count(bytes_max)
            raise
        if codec != Codec.NONE:
            self._count(len(inflated))
        return inflated

    def _count(self, size: int) -> None:
        self.bytes += 0 if self.is_job else size

    def turn(self, work: Callable[[], Any]) -> Any:
        """Do the work of one turn."""
        self.bytes = 0
        try:
            return work()
        finally:
            self.most = max(self.most, self.bytes)

    def job(self, work: Callable[[], Any]) -> Any:
        self.is_job = True
        try:
            return work()
        finally:
            self.is_job = False


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inflated]:
    counted = Inflated()
    for module in (validation, recompression):
        monkeypatch.setattr(module, "decompress", counted.decompress)
    return counted  # type: ignore[return-value]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "configs", [COMPACTED, {"smq.validate": "records"}, {"compression.type": "zstd"}]
)
def test_the_loop_inflates_a_little_in_each_turn_and_lanes_the_rest(
    tmp_path: Path, inflated: Inflated, codec: Codec, configs: dict[str, str]
) -> None:
    """data fault 11: all batches of a request were inflated in one step, 8 MiB each."""
    shard = new_shard(tmp_path, topic("one", range(1, 1 + MANY), configs))
    producer = new_producer(shard)
    sizes = [LARGE, 200_000]  # For the lane, and for the loop as far as there is room.
    small = {i: keyed(sizes[i % 2], codec) for i in range(MANY)}
    data = np.frombuffer(bytearray(produce_request({"one": small})), np.uint8)
    producer.room.begin_turn()
    produced = inflated.turn(
        lambda: producer.producing.run(data, 0, len(data), shard.directory, NOW)
    )
    assert produced.left is not None
    assert not produced.answers
    unfinished = Unfinished(shard, producer.in_steps, data, produced.left)
    outcome, jobs = None, 0
    while not isinstance(outcome, Produced):
        producer.room.begin_turn()
        outcome = inflated.turn(lambda: unfinished.step(NOW))
        if outcome is not None and not isinstance(outcome, Produced):
            jobs += 1
            unfinished.told(inflated.job(outcome))
    assert [(each.error_code, each.base_offset) for each in rows(bytes(outcome.answers))] == [
        (0, 0)
    ] * MANY
    assert jobs >= MANY // 2
    assert 0 < inflated.most <= 1024 * 1024


def test_a_request_of_many_bytes_is_appended_so_many_at_a_time(tmp_path: Path) -> None:
    """data fault 11: checking and copying 100 MB held a shard for 0.2 s."""
    shard = new_shard(
        tmp_path, topic("one", range(1, 201)), socket_request_max_bytes=8 * STEP_BYTES
    )
    producer, size = Producer(shard), 30_000
    request = produce_request({"one": {i: batch(bytes(size)) for i in range(200)}})
    produced = producer.run(request)
    ends = [led.offsets().log_end for led in shard.led()]
    assert produced.left is not None
    assert STEP_BYTES // size // 2 < sum(ends) <= STEP_BYTES // size + 1
    [answer] = [producer.finished(request, produced.left)]
    assert [row.base_offset for row in rows(bytes(answer.answers))] == [0] * 200
    assert len(request) // STEP_BYTES <= producer.steps < 2 * len(request) // STEP_BYTES
    assert sum(led.offsets().log_end for led in shard.led()) == 200


def test_requests_before_it_are_answered_at_once_and_those_behind_it_are_not_taken(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, topic("one", configs=COMPACTED), topic("two", range(2, 3)))
    producer, log = new_producer(shard), shard.logs[0]
    before = produce_request({"two": {0: batch(b"a")}}, correlation=1)
    slow = produce_request({"two": {0: batch(b"b")}, "one": {0: keyed(LARGE)}}, correlation=2)
    after = produce_request({"two": {0: batch(b"c")}}, correlation=3)
    produced = producer.run(before + slow + after)
    assert [number for number, _ in responses(bytes(produced.answers))] == [1]
    left = produced.left
    assert left is not None
    assert (
        (left.start, left.end)
        == (len(before), len(before + slow))
        == (
            len(before),
            produced.consumed_to,
        )
    )
    assert log.words[COUNTER_PRODUCE_REQUESTS] == 1
    [(number, response)] = responses(bytes(producer.finished(before + slow, left).answers))
    assert number == 2
    assert [each.partition_responses[0].base_offset for each in response.responses] == [1, 0]
    assert log.words[COUNTER_PRODUCE_REQUESTS] == 2
    assert rows(producer.answers(after))[0].base_offset == 2
    shard.invariants()


def test_batches_of_one_partition_stay_in_order(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("one", configs=COMPACTED))
    producer = new_producer(shard)
    sent = b"".join(
        produce_request({"one": {0: keyed(size)}}, correlation=i)
        for i, size in enumerate([10, LARGE, 20, LARGE, 30])
    )
    found = responses(producer.answers(sent))
    assert [number for number, _ in found] == [0, 1, 2, 3, 4]
    answers = [each.responses[0].partition_responses[0].base_offset for _, each in found]
    assert answers == [0, 1, 2, 3, 4]


def test_a_batch_that_is_refused_by_a_lane_is_named_and_its_neighbours_are_appended(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, topic("one", range(1, 4), COMPACTED))
    keyless = bytes(write_batch([Record(0, NOW_MS, None, bytes(LARGE))], compression=Codec.ZSTD))
    request = produce_request({"one": {0: keyed(LARGE), 1: keyless, 2: keyed(LARGE)}})
    first, second, third = rows(new_producer(shard).answers(request))
    assert (first.error_code, third.error_code) == (0, 0)
    assert second.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in second.record_errors] == [0]


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_that_is_deleted_between_two_steps_gets_nothing_of_the_request(
    tmp_path: Path, is_created_again: bool
) -> None:
    """Its slot may be another topic's by then."""
    one, other = topic("one", range(1, 4), COMPACTED), topic("other", range(7, 10))
    shard = new_shard(tmp_path, one)
    producer = new_producer(shard)
    request = produce_request({"one": {i: keyed(LARGE) for i in range(3)}})
    produced = producer.run(request)
    assert produced.left is not None
    unfinished = Unfinished(
        shard, producer.in_steps, np.frombuffer(bytearray(request), np.uint8), produced.left
    )
    job = unfinished.step(NOW)
    assert callable(job)
    unfinished.told(job())
    again = topic("one", range(4, 7), COMPACTED)
    shard.take_catalog(catalog(other, *[again] * is_created_again), 2)
    found = rows(bytes(producer.stepped(unfinished).answers))
    wanted = (0, 0) if is_created_again else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert [(each.error_code, each.base_offset) for each in found] == [wanted] * 3
    ends = {led.topic.name: led.offsets().log_end for led in shard.led()}
    assert ends["other"] == 0
    shard.invariants()


def test_a_topic_that_is_compacted_between_two_steps_has_its_batches_checked_again(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, topic("one", configs={"smq.validate": "records"}))
    producer = new_producer(shard)
    keyless = bytes(write_batch([Record(0, NOW_MS, None, bytes(LARGE))], compression=Codec.ZSTD))
    data = np.frombuffer(bytearray(produce_request({"one": {0: keyless}})), np.uint8)
    unfinished = Unfinished(shard, producer.in_steps, data)
    job = unfinished.step(NOW)
    assert callable(job)
    unfinished.told(job())
    shard.take_catalog(catalog(topic("one", configs=COMPACTED)), 2)
    [answer] = rows(bytes(producer.stepped(unfinished).answers))
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("slow", [0, 1])
def test_with_several_logs_each_batch_is_appended_once(tmp_path: Path, slow: int) -> None:
    logs = (slow, 1 - slow)
    shard = new_shard(
        tmp_path,
        topic("slow", range(1, 3), COMPACTED, logs),
        topic("fast", range(3, 5), {"smq.durability": "disk"}, logs),
        logs=2,
    )
    producer = new_producer(shard)
    sent = b"".join(
        produce_request(
            {"fast": {0: batch(b"x"), 1: batch(b"y")}, "slow": {0: keyed(LARGE), 1: keyed(10)}},
            correlation=i,
        )
        for i in range(4)
    )
    produced = producer.run(sent)
    assert produced.left is not None
    finished = producer.finished(sent, produced.left)
    found = responses(bytes(finished.answers))
    assert [number for number, _ in found] == [0, 1, 2, 3]
    for number, response in found:
        offsets = [r.base_offset for each in response.responses for r in each.partition_responses]
        assert offsets == [number] * 4
    assert {led.offsets().log_end for led in shard.led()} == {4}
    tails = {log.number: log.tail for log in shard.logs.values()}
    assert sorted(finished.marks) == [Mark(n, tails[n], DURABILITY_DISK) for n in (0, 1)]


def test_the_marks_are_of_all_steps(tmp_path: Path) -> None:
    shard = new_shard(
        tmp_path,
        topic("safe", range(1, 2), {"smq.durability": "disk"}),
        topic("one", range(2, 3), COMPACTED),
    )
    request = produce_request({"safe": {0: batch(b"a")}, "one": {0: keyed(LARGE)}})
    producer = new_producer(shard)
    produced = producer.run(request)
    assert produced.left is not None
    tail = shard.logs[0].tail
    assert produced.left.marks == (Mark(0, tail, DURABILITY_DISK),)
    finished = producer.finished(request, produced.left)
    assert finished.marks == (Mark(0, shard.logs[0].tail, DURABILITY_DISK),)
    assert finished.marks[0].position > tail
    assert DURABILITY_DISK > DURABILITY_OS


def test_without_acks_an_error_in_a_later_step_closes(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("one", configs=COMPACTED))
    keyless = bytes(write_batch([Record(0, NOW_MS, None, bytes(LARGE))], compression=Codec.ZSTD))
    request = produce_request({"one": {0: keyless}}, acks=0)
    producer = new_producer(shard)
    produced = producer.run(request)
    assert produced.left is not None
    assert not produced.close
    finished = producer.finished(request, produced.left)
    assert finished.close
    assert not finished.answers


def test_a_malformed_request_raises_peer_error(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("one"))
    producer = Producer(shard)
    body = produce_request({"one": {0: batch(b"a")}})[4:-3]
    data = np.frombuffer(bytearray(len(body).to_bytes(4) + body), np.uint8)
    with pytest.raises(PeerError):
        Unfinished(shard, producer.in_steps, data).step(NOW)


def test_lent_data_is_copied_when_it_is_kept(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("one", configs=COMPACTED))
    producer = new_producer(shard)
    data = np.frombuffer(bytearray(produce_request({"one": {0: keyed(LARGE)}})), np.uint8)
    unfinished = Unfinished(shard, producer.in_steps, data)
    assert callable(unfinished.step(NOW))
    unfinished.keep()
    data[:] = 0
    [answer] = rows(bytes(producer.stepped(unfinished).answers))
    assert answer.error_code == 0


# --- partitions that are closed, as they move ----------------------------------------------------


def set_closed(shard: Shard, number: int, *, closed: bool = True) -> None:
    led = shard.by_number(number)
    assert led is not None
    flags = int(led.log.partitions.table[led.slot, P_FLAGS]) & ~FLAG_CLOSED
    led.log.partitions.table[led.slot, P_FLAGS] = flags | (FLAG_CLOSED if closed else 0)


def at_ms(later_ms: int) -> Now:
    return NOW._replace(monotonic_ms=NOW.monotonic_ms + later_ms)


def begun(shard: Shard, *partitions: int) -> Unfinished:
    """A request for these partitions of topic `one`, with what was done of it at once."""
    data = np.frombuffer(
        bytearray(produce_request({"one": dict.fromkeys(partitions, batch(b"x"))})), np.uint8
    )
    producer = new_producer(shard)
    produced = producer.producing.run(data, 0, len(data), shard.directory, NOW)
    assert produced.left is not None
    assert not produced.answers
    return Unfinished(shard, producer.in_steps, data, produced.left)


def test_a_request_for_a_closed_partition_is_held_until_it_is_open(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("one", range(1, 4)))
    set_closed(shard, 2)
    request = begun(shard, 0, 1, 2)
    assert request.step(NOW) == HeldBack(NOW.monotonic_ms + HOLD_MS)
    assert request.step(at_ms(HOLD_MS - 1)) == HeldBack(NOW.monotonic_ms + HOLD_MS)
    assert [each.offsets().log_end for each in shard.led()] == [1, 0, 0]
    set_closed(shard, 2, closed=False)
    produced = request.step(at_ms(HOLD_MS - 1))
    assert isinstance(produced, Produced)
    assert [(each.error_code, each.base_offset) for each in rows(bytes(produced.answers))] == [
        (0, 0)
    ] * 3
    assert [each.offsets().log_end for each in shard.led()] == [1, 1, 1]


@pytest.mark.parametrize("is_told", [False, True])
def test_a_held_request_is_refused_in_time_and_its_other_batches_are_appended(
    tmp_path: Path, *, is_told: bool
) -> None:
    shard = new_shard(tmp_path, topic("one", range(1, 4)))
    set_closed(shard, 2)
    request = begun(shard, 0, 1, 2)
    assert isinstance(request.step(NOW), HeldBack)
    if is_told:
        request.hold_no_longer()
    produced = request.step(NOW if is_told else at_ms(HOLD_MS))
    assert isinstance(produced, Produced)
    codes = [each.error_code for each in rows(bytes(produced.answers))]
    assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]
    assert [each.offsets().log_end for each in shard.led()] == [1, 0, 1]


def test_a_held_batch_is_not_appended_to_another_partition_that_has_its_row_by_then(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, topic("one", range(1, 3)))
    set_closed(shard, 2)
    request = begun(shard, 0, 1)
    assert isinstance(request.step(NOW), HeldBack)
    shard.take_catalog(catalog(topic("another", range(3, 5))), 2)
    produced = request.step(NOW)
    assert isinstance(produced, Produced)
    codes = [each.error_code for each in rows(bytes(produced.answers))]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [each.offsets().log_end for each in shard.led()] == [0, 0]
