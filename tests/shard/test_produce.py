"""Produce over receive buffers: cut, mixed, too large, for several logs."""

from pathlib import Path

import pytest

from shm.kernels.base.words import (
    COUNTER_PRODUCE_REQUESTS,
    DURABILITY_DISK,
    DURABILITY_OS,
    STEP_BYTES,
    STOP_MALFORMED,
    STOP_NEED_MORE,
    STOP_OTHER_API,
)
from shm.timings import Errors
from smq.model.errors import ErrorCode
from smq.shard.produce import (
    ANSWERS_BYTES,
    REQUESTS_MAX,
    ROWS_MAX,
    Mark,
)
from smq.wire.records import Record, write_batch
from tests.shard.shard_bench import (
    Appender,
    Producer,
    batch,
    new_shard,
    produce_request,
    responses,
    topic,
)
from tests.shard.transactional_bench import transactional_request

KEY_OF_METADATA = 3


def offsets(answers: bytes) -> list[int]:
    return [
        partition.base_offset
        for _, response in responses(answers)
        for each in response.responses
        for partition in each.partition_responses
    ]


def test_all_whole_requests_of_a_buffer_are_taken_at_once_in_order(tmp_path: Path) -> None:
    appender = Appender(new_shard(tmp_path, topic("one")))
    sent = b"".join(
        produce_request({"one": {0: batch(b"x", b"y")}}, correlation=i) for i in range(5)
    )
    produced = appender.run(sent)
    assert (produced.consumed_to, produced.stop) == (len(sent), STOP_NEED_MORE)
    assert [correlation for correlation, _ in responses(bytes(produced.answers))] == [*range(5)]
    assert offsets(bytes(produced.answers)) == [0, 2, 4, 6, 8]
    assert produced.marks == (Mark(0, appender.shard.logs[0].tail, DURABILITY_OS),)


@pytest.mark.parametrize("left", [1, 3, 4, 5, 40])
def test_a_cut_request_is_left_until_it_is_whole(tmp_path: Path, left: int) -> None:
    appender = Appender(new_shard(tmp_path, topic("one")))
    request = produce_request({"one": {0: batch(b"x")}})
    produced = appender.run(request + request[:left])
    assert (produced.consumed_to, produced.stop) == (len(request), STOP_NEED_MORE)
    assert offsets(bytes(produced.answers)) == [0]


def test_it_stops_before_a_request_of_another_api(tmp_path: Path) -> None:
    appender = Appender(new_shard(tmp_path, topic("one")))
    request = produce_request({"one": {0: batch(b"x")}})
    other = (8).to_bytes(4) + KEY_OF_METADATA.to_bytes(2) + bytes(6)
    produced = appender.run(request + other + request)
    assert (produced.consumed_to, produced.stop) == (len(request), STOP_OTHER_API)


@pytest.mark.parametrize("size", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_impossible_sizes_break_the_protocol(tmp_path: Path, size: int) -> None:
    appender = Appender(new_shard(tmp_path, topic("one")))
    assert appender.run(size.to_bytes(4, signed=True) + bytes(20)).stop == STOP_MALFORMED


def test_the_level_of_a_buffer_is_the_highest_of_its_topics(tmp_path: Path) -> None:
    shard = new_shard(
        tmp_path, topic("one"), topic("safe", range(2, 3), {"smq.durability": "disk"})
    )
    both = {"one": {0: batch(b"x")}, "safe": {0: batch(b"x")}}
    produced = Appender(shard).run(produce_request(both))
    assert produced.marks == (Mark(0, shard.logs[0].tail, DURABILITY_DISK),)


def test_marks_name_the_logs_that_were_touched_each_with_its_own_level(tmp_path: Path) -> None:
    shard = new_shard(
        tmp_path,
        topic("one", range(1, 3), logs=(0, 1)),
        topic("safe", range(3, 4), {"smq.durability": "disk"}, logs=(1,)),
        logs=3,
    )
    appender, logs = Appender(shard), shard.logs
    both = produce_request({"one": {0: batch(b"x")}, "safe": {0: batch(b"x")}})
    levels = (DURABILITY_OS, DURABILITY_DISK)
    assert appender.run(both).marks == tuple(Mark(i, logs[i].tail, levels[i]) for i in range(2))
    again = produce_request({"one": {1: batch(b"x")}})
    assert appender.run(again).marks == (Mark(1, logs[1].tail, DURABILITY_OS),)
    assert appender.run(produce_request({"none": {0: batch(b"x")}})).marks == ()


def test_a_batch_that_was_appended_before_counts_as_touched(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("safe", range(1, 2), {"smq.durability": "disk"}))
    appender = Appender(shard)
    records = [Record(0, 1, None, b"x", ())]
    data = bytes(write_batch(records, producer_id=9, producer_epoch=0, base_sequence=0))
    first = appender.run(produce_request({"safe": {0: data}}))
    again = appender.run(produce_request({"safe": {0: data}}))
    assert bytes(again.answers) == bytes(first.answers)
    assert first.marks == again.marks == (Mark(0, shard.logs[0].tail, DURABILITY_DISK),)


def test_more_requests_than_a_plan_holds_are_taken_in_several_runs(tmp_path: Path) -> None:
    appender = Appender(new_shard(tmp_path, topic("one")))
    count = REQUESTS_MAX + 10
    sent = b"".join(produce_request({"one": {0: batch(b"")}}, correlation=i) for i in range(count))
    at, found = 0, []
    while at < len(sent):
        produced = appender.run(sent[at:])
        assert produced.consumed_to > 0
        at += produced.consumed_to
        found += [correlation for correlation, _ in responses(bytes(produced.answers))]
        appender.end_turn()
    assert found == [*range(count)]


def test_a_request_of_very_many_partitions_is_finished_in_steps(tmp_path: Path) -> None:
    partitions = ROWS_MAX + 100
    request = produce_request({"wide": {i: batch(b"") for i in range(partitions)}})
    shard = new_shard(tmp_path, topic("wide", range(1, 2)), socket_request_max_bytes=len(request))
    counted = Errors.private()
    producer = Producer(shard, errors=counted.table[0])
    [(_, response)] = responses(producer.answers(request))
    errors = {each.index: each.error_code for each in response.responses[0].partition_responses}
    assert len(errors) == partitions
    assert errors.pop(0) == ErrorCode.NONE
    assert set(errors.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert counted.table.sum() == partitions - 1
    assert len(producer.in_steps.out) == ANSWERS_BYTES  # What one client asked for is not kept.


@pytest.mark.parametrize("logs", [1, 2])
def test_requests_are_charged_once_and_answered_with_the_throttle_time(
    tmp_path: Path, logs: int
) -> None:
    shard = new_shard(tmp_path, topic("one"), logs=logs)
    producer, charged = Producer(shard), list[int]()

    def charge(end: int) -> int:
        charged.append(end)
        return 250

    one = produce_request({"one": {0: batch(bytes(1000))}})
    transactional = transactional_request({"one": {0: batch(bytes(1000))}})
    for behind in (b"", one[:-1], transactional, b"\xff" * 4):
        produced = producer.run(one * 3 + behind, charge=charge)
        told = [each.throttle_time_ms for _, each in responses(bytes(produced.answers))]
        assert (told, charged.pop(), charged) == ([250] * 3, 3 * len(one), [])


@pytest.mark.parametrize("logs", [1, 2])
def test_requests_that_are_finished_in_steps_are_charged_with_those_before_them(
    tmp_path: Path, logs: int
) -> None:
    shard = new_shard(
        tmp_path,
        topic("one", range(1, 101)),
        logs=logs,
        socket_request_max_bytes=8 * STEP_BYTES,
    )
    producer, charged = Producer(shard), list[int]()

    def charge(end: int) -> int:
        charged.append(end)
        return 250

    one = produce_request({"one": {0: batch(b"x")}})
    many = produce_request({"one": dict.fromkeys(range(1 + ROWS_MAX), b"")})  # Exceeds the plan.
    large = produce_request({"one": {i: batch(bytes(30_000)) for i in range(100)}})
    for sent in (many + one, one + large + one):
        left = producer.run(sent, charge=charge).left
        assert left is not None
        assert (left.throttle_ms, charged) == (250, [left.end])
        for _, response in responses(bytes(producer.finished(sent, left).answers)):
            assert response.throttle_time_ms == 250
        charged.clear()


@pytest.mark.parametrize(("logs", "is_charged"), [(1, False), (1, True), (2, False)])
def test_requests_are_counted_once_however_they_are_taken(
    tmp_path: Path, logs: int, is_charged: bool
) -> None:
    most = 8 * STEP_BYTES
    shard = new_shard(
        tmp_path, topic("one", range(1, 101)), logs=logs, socket_request_max_bytes=most
    )
    producer = Producer(shard)
    one = produce_request({"one": {0: batch(b"x")}})
    large = produce_request({"one": {i: batch(bytes(30_000)) for i in range(100)}})
    sent, charge = one * 3 + large, (lambda _: 0) if is_charged else None
    left = producer.run(sent, charge=charge).left
    assert shard.logs[0].words[COUNTER_PRODUCE_REQUESTS] == 3
    assert left is not None
    producer.finished(sent, left)
    assert shard.logs[0].words[COUNTER_PRODUCE_REQUESTS] == 4


def test_an_error_without_an_answer_closes(tmp_path: Path) -> None:
    appender = Appender(new_shard(tmp_path, topic("one")))
    produced = appender.run(produce_request({"unknown": {0: batch(b"x")}}, acks=0))
    assert produced.close
    assert not produced.answers


def test_partitions_of_several_logs_are_appended_each_to_its_own(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("spread", range(1, 3), logs=(0, 1)), logs=2)
    appender = Appender(shard)
    appender.append("spread", 0, batch(b"a"))
    appender.append("spread", 1, batch(b"b", b"c"))
    ends = [each.offsets().high_watermark for each in shard.led()]
    assert ends == [1, 2]
