"""Nothing lost, nothing doubled, nothing reordered, whatever the broker and the channel do."""

from collections.abc import Callable
from types import FunctionType

import pytest
from hypothesis import given, settings, strategies as st

from smq.client.errors import BrokerUnavailable, NoSuchTopic, RecordTooLarge
from smq.client.producing import accumulator as accumulator_file
from smq.client.producing.accumulator import ANSWER_MS_MAX, LOOK_MS, RETRY_MS, Accumulator
from smq.client.producing.batch_queue import IN_FLIGHT_MAX, Queue
from smq.client.producing.batch_writer import BatchWriter
from smq.client.producing.futures import Future
from smq.client.producing.parcel import Parcel
from smq.client.producing.single import Single
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.codec import Malformed
from smq.wire.compression import Codec
from smq.wire.records import read_batches
from tests.client.accumulator_rig import NODE, Rig, single_of
from tests.client.accumulator_steps import (
    FOR_GOOD,
    PASSING_WITH_APPEND,
    PASSING_WITHOUT_APPEND,
    STEPS,
    do,
    values,
)
from tests.client.fake_shard import FakeChannel
from tests.client.interrupts import code_of, is_interrupted
from tests.client.parcels import closed


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_every_record_arrives_once_and_in_order(steps: list[tuple[object, ...]]) -> None:
    rig = Rig(batch_bytes=120)
    for step in steps:
        do(rig, step)
        rig.accumulator.invariants()
    rig.settle()
    rig.check()
    assert rig.accumulator.buffered_bytes == 0


def test_rows_are_cut_into_batches_of_a_bounded_size() -> None:
    rig = Rig(batch_bytes=200)
    rig.add([0] * 100)
    rig.settle()
    assert values(rig) == list(range(100))
    assert rig.shard.partitions["t", 0].known[7][-1][1] == 99


def test_a_new_producer_has_one_batch_in_flight_and_a_known_one_five() -> None:
    rig = Rig()
    rig.add([0] * 400)
    rig.drain()
    assert len(rig.channel.sent) == 1
    rig.deliver()
    rig.answer()
    rig.drain()
    assert len(rig.channel.sent) == IN_FLIGHT_MAX


def test_a_lost_answer_is_asked_for_again_with_the_same_sequence() -> None:
    rig = Rig()
    parcel = rig.add([0])
    rig.drain()
    first = rig.channel.sent[0]
    rig.lose(delivered=1)
    rig.learn()
    rig.drain()
    assert not rig.channel.sent  # Not at once: a broker that is gone is asked now and then.
    rig.now_ms += RETRY_MS
    rig.drain()
    (again,) = rig.channel.sent
    assert again[12:] == first[12:]  # Behind size and correlation id.
    rig.deliver()
    rig.answer()
    assert values(rig) == [0]
    assert parcel.delivery(0).offset == 0


def test_no_batch_goes_that_would_make_the_broker_forget_one_in_doubt() -> None:
    rig = Rig(batch_bytes=120)
    rig.add([0])
    rig.settle()
    for _ in range(9):
        rig.add([0])
    rig.drain()
    rig.deliver(ErrorCode.REQUEST_TIMED_OUT)  # It has the batch, and does not say so.
    for _ in range(4):
        rig.deliver()
    rig.answer()
    rig.now_ms += RETRY_MS
    rig.learn()
    rig.drain()
    assert len(rig.channel.sent) == 1  # The first again; its four followers have arrived.
    rig.lose(delivered=1)
    rig.settle()
    rig.check()


def test_what_is_refused_for_good_fails_alone_and_what_is_behind_it_goes_on() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    bad, good = rig.add([0]), rig.add([0])
    rig.drain()
    rig.deliver(FOR_GOOD, append=False)
    rig.deliver()  # Out of order now: the broker never saw its predecessor.
    rig.answer()
    rig.settle()
    assert values(rig) == [0, 2]
    error = bad.error_of(0)
    assert isinstance(error, BrokerError)
    assert error.code == FOR_GOOD
    assert good.delivery(0).offset == 1


def test_a_broker_that_lost_its_last_records_is_told_from_a_new_epoch() -> None:
    rig = Rig()
    for _ in range(2):
        rig.add([0])
        rig.settle()
    rig.shard.partitions["t", 0].forget_last_batch(7)
    rig.add([0])
    rig.settle()
    assert values(rig) == [0, 2]
    assert rig.shard.partitions["t", 0].epochs[7] == 1


def test_a_record_too_large_for_its_topic_fails_and_its_neighbours_do_not() -> None:
    rig = Rig(message_bytes_max=300)
    parcel = closed([(b"small", 0), (bytes(400), 0), (b"also", 0)])
    rig.accumulator.add(parcel)
    rig.settle()
    assert [parcel.is_done(row) for row in range(3)] == [True] * 3
    assert isinstance(parcel.error_of(1), RecordTooLarge)
    assert rig.shard.partitions["t", 0].values() == [b"small", b"also"]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    rig = Rig(batch_bytes=200)
    rig.accumulator.add(closed([(b"small", 0), (bytes(500), 0), (b"also", 0)]))
    rig.settle()
    assert rig.shard.partitions["t", 0].values() == [b"small", bytes(500), b"also"]


def test_what_waits_too_long_fails_and_the_rest_arrives() -> None:
    rig = Rig()
    late, early = rig.add([0, 1], deadline_ms=500), rig.add([0])
    rig.now_ms = 500
    rig.accumulator.expire(rig.now_ms)
    rig.accumulator.invariants()
    assert late.is_resolved()
    assert isinstance(late.error_of(0), BrokerUnavailable)
    rig.settle()
    assert values(rig) == [2]
    assert early.is_resolved()


def test_a_topic_that_is_gone_fails_what_waits() -> None:
    rig = Rig()
    parcel = rig.add([0, 1, 2])
    rig.accumulator.forget("t")
    assert isinstance(parcel.error_of(2), NoSuchTopic)
    assert not rig.accumulator.parcels


def test_records_follow_their_leader() -> None:
    rig = Rig()
    rig.add([0, 0])
    rig.drain()
    rig.deliver(ErrorCode.NOT_LEADER_OR_FOLLOWER, append=False)
    rig.answer()
    assert rig.accumulator.stale == {"t"}
    rig.accumulator.learn("t", [2, 2, 2], 10_000)
    assert rig.accumulator.leaders_wanted() == {2}
    other = FakeChannel()
    rig.accumulator.drain({NODE: rig.channel, 2: other}, rig.now_ms)
    assert (len(rig.channel.sent), len(other.sent)) == (0, 1)


def test_a_partition_without_leader_waits_for_one() -> None:
    rig = Rig()
    rig.accumulator.learn("t", [-1, NODE, NODE], 10_000)
    rig.add([1])
    rig.round()
    assert rig.accumulator.stale == set()
    rig.add([0])
    rig.drain()
    assert (values(rig, 0), values(rig, 1)) == ([], [0])
    assert rig.accumulator.stale == {"t"}
    rig.settle()
    assert values(rig, 0) == [1]


def test_a_full_channel_is_no_loss() -> None:
    rig = Rig()
    rig.channel = FakeChannel(room_bytes=600)
    rig.add([0] * 50 + [1] * 50 + [2] * 50)
    rig.settle()
    rig.check()


def test_a_broker_that_is_silent_for_too_long_is_named() -> None:
    rig = Rig()
    rig.add([0])
    rig.drain()
    assert rig.accumulator.silent(ANSWER_MS_MAX) == []
    rig.accumulator.expire(ANSWER_MS_MAX)
    assert rig.accumulator.next_due_ms(ANSWER_MS_MAX) == ANSWER_MS_MAX + LOOK_MS
    assert rig.accumulator.silent(ANSWER_MS_MAX + 1) == [NODE]


def test_a_broker_that_cannot_be_reached_is_doubted() -> None:
    rig = Rig()
    rig.add([0])
    rig.accumulator.doubt(NODE)
    assert rig.accumulator.stale == {"t"}


def test_what_will_be_due_is_known() -> None:
    rig = Rig()
    assert rig.accumulator.next_due_ms(0) is None
    rig.add([0], deadline_ms=5000)
    assert rig.accumulator.next_due_ms(0) == 5000
    rig.drain()
    rig.lose(0)
    assert rig.accumulator.next_due_ms(0) == RETRY_MS


@pytest.mark.parametrize(
    "change",
    [lambda data: b"\0\0\0\7" + data[4:], lambda data: data[:4] + bytes(8)],
    ids=["another request", "no partition"],
)
def test_an_answer_to_another_question_is_no_answer(change: Callable[[bytes], bytes]) -> None:
    rig = Rig()
    rig.add([0])
    rig.drain()
    rig.deliver()
    (answer,) = rig.channel.answers()
    with pytest.raises(Malformed):
        rig.accumulator.answered(NODE, change(answer), 0)


def test_compressed_batches_are_sent_again_as_they_were() -> None:
    rig = Rig()
    rig.accumulator = Accumulator("test", (7, 0), BatchWriter(Codec.LZ4), 10_000)
    rig.accumulator.learn("t", [NODE] * 3, 10_000)
    rig.add([0] * 500)
    rig.drain()
    first = rig.channel.sent[0]
    (batch,) = read_batches(first[first.index(b"\x02", 40) - 16 :])
    assert batch.codec == Codec.LZ4
    rig.lose(delivered=0)
    rig.settle()
    assert values(rig) == list(range(500))


def test_epochs_that_are_used_up_are_told() -> None:
    rig = Rig()
    rig.accumulator = Accumulator("test", (7, 2**15), BatchWriter(Codec.NONE), 10_000)
    rig.accumulator.learn("t", [NODE] * 3, 10_000)
    parcel = rig.add([0, 0])
    rig.drain()
    error = parcel.error_of(0)
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_single_record_leaves_at_once_and_as_many_follow_as_a_broker_remembers() -> None:
    rig = Rig()
    assert rig.send_single(0)
    assert not rig.send_single(0)  # The broker does not know us yet.
    rig.settle()
    sent = [rig.send_single(0) for _ in range(IN_FLIGHT_MAX + 1)]
    assert sent == [True] * IN_FLIGHT_MAX + [False]
    rig.settle()
    rig.check()


@pytest.mark.parametrize("lacks", ["channel", "room for it", "plainness", "epoch"])
def test_a_single_record_that_cannot_go_alone_is_not_taken(lacks: str) -> None:
    rig = Rig(message_bytes_max=150 if lacks == "room for it" else 10_000)
    codec = Codec.GZIP if lacks == "plainness" else Codec.NONE
    producer = (7, 2**15 if lacks == "epoch" else 0)
    rig.accumulator = Accumulator("test", producer, BatchWriter(codec), 200)
    rig.accumulator.learn("t", [NODE], rig.message_bytes_max)
    channels = {} if lacks == "channel" else {NODE: rig.channel}
    assert not rig.accumulator.send_single(single_of(bytes(100)), channels, 0)
    rig.accumulator.invariants()
    assert not rig.accumulator.parcels
    assert not rig.channel.sent


def test_a_single_record_waits_for_room() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    rig.channel = FakeChannel(room_bytes=200)
    for _ in range(3):
        rig.send_single(0)
        rig.accumulator.invariants()
    assert len(rig.channel.sent) == 1
    rig.settle()
    rig.check()


def test_a_single_record_whose_channel_is_gone_is_sent_again() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    rig.channel.close()
    assert rig.send_single(0)
    assert rig.accumulator.gone == {NODE}
    rig.accumulator.gone.clear()
    rig.lose(delivered=0)
    rig.settle()
    rig.check()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_what_a_channel_can_never_take_waits_for_another_one_and_the_rest_is_cut_to_fit(
    codec: Codec,
) -> None:
    rig = Rig(batch_bytes=100_000, message_bytes_max=100_000)
    rig.accumulator = Accumulator("test", (7, 0), BatchWriter(codec), 100_000)
    rig.accumulator.learn("t", [NODE] * 3, 100_000)
    rig.shard.batch_bytes_max = 100_000
    rig.channel.request_bytes_max = 4000
    single = single_of(bytes(5000))
    assert not rig.accumulator.send_single(single, {NODE: rig.channel}, 0)
    small = rig.add([0] * 100, size=100)
    while rig.accumulator.parcels:
        rig.round()
    assert not rig.accumulator.request_bytes
    before, large, behind = rig.add([0, 1]), rig.add([0], size=5000), rig.add([0, 1])
    rig.accumulator.drain({NODE: rig.channel}, 0)
    assert rig.accumulator.gone == {NODE}
    assert 5000 < rig.accumulator.request_bytes[NODE] < 7500
    rig.accumulator.gone.clear()
    rig.lose(1)  # Of what is before it in flight.
    rig.settle()
    assert [small.delivery(row).offset for row in range(100)] == [*range(100)]
    offsets = [each.delivery(0).offset for each in (before, large, behind)]
    assert offsets == [100, 101, 102]


def test_what_was_sent_and_is_too_large_for_a_new_channel_waits_for_another_one() -> None:
    rig = Rig()
    parcel = rig.add([0] * 10)
    rig.drain()
    rig.lose(1)
    rig.channel.request_bytes_max = 100
    rig.now_ms += RETRY_MS
    rig.learn()
    rig.accumulator.drain({NODE: rig.channel}, rig.now_ms)
    assert rig.accumulator.gone == {NODE}
    assert rig.accumulator.request_bytes[NODE] > 100
    rig.accumulator.gone.clear()
    rig.lose(0)
    rig.settle()
    assert [parcel.delivery(row).offset for row in range(10)] == [*range(10)]
    rig.check()


def test_what_no_channel_can_take_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulator_file, "REQUEST_BYTES_MAX", 4000)
    rig = Rig()
    rig.channel.request_bytes_max = 4000
    large, small = rig.add([0], size=5000), rig.add([0])
    rig.settle()
    with pytest.raises(RecordTooLarge, match="send it by reference"):
        Future(large, 0).result()
    assert small.delivery(0).offset == 0


@pytest.mark.parametrize("is_single", [True, False], ids=["single", "parcel"])
def test_whatever_is_interrupted_while_it_is_sent_arrives_once_or_was_not_taken(
    *, is_single: bool
) -> None:
    codes = {
        each.__code__
        for each in vars(Accumulator).values()
        if isinstance(each, FunctionType) and each.__name__ not in {"_send_again", "drain"}
    } | code_of(FakeChannel.send_one, FakeChannel.commit, FakeChannel.reserve, Accumulator._stamp)
    is_there, number = True, 0
    while is_there:
        rig = Rig(batch_bytes=120)
        rig.add([0])
        rig.settle()
        rig.add([0] * (0 if is_single else 20))

        def send(rig: Rig = rig) -> None:
            assert not is_single or rig.send_single(0)
            rig.drain()

        is_there = is_interrupted(send, codes, number)
        taken = sum(each.row_count for each in rig.accumulator.parcels)
        rig.accumulator.invariants()
        if rig.accumulator.gone:
            rig.accumulator.gone.clear()
            rig.lose(len(rig.channel.sent) if number % 2 else 0)
        rig.add([0] * 3)
        rig.settle()
        assert len(rig.shard.partitions["t", 0].values()) == 1 + taken + 3
        number += 1
    assert number > 10


@pytest.mark.parametrize(
    "fault", [ErrorCode.NONE, FOR_GOOD, PASSING_WITHOUT_APPEND[0], PASSING_WITH_APPEND[0]]
)
@pytest.mark.parametrize("is_single", [True, False], ids=["single", "parcel"])
def test_whatever_is_interrupted_while_an_answer_is_taken_is_done_or_done_again(
    fault: ErrorCode, *, is_single: bool
) -> None:
    codes = {
        each.__code__
        for of in (Accumulator, Queue, Parcel, Single)
        for each in vars(of).values()
        if isinstance(each, FunctionType) and each.__name__ != "invariants"
    } | code_of(FakeChannel.answers)
    is_there, number = True, 0
    while is_there:
        rig = Rig()
        rig.add([0])
        rig.settle()
        rig.add([0, 1, 0, 2])
        if is_single:
            rig.settle()
            assert rig.send_single(0)
        rig.drain()
        rig.add([0] * 3)
        rig.drain()
        rig.deliver(fault, append=fault in {ErrorCode.NONE, *PASSING_WITH_APPEND})
        while rig.channel.sent:
            rig.deliver()
        if is_there := is_interrupted(rig.answer, codes, number):
            rig.lose(0)
        rig.settle()
        rig.check()
        assert not rig.accumulator.buffered_bytes
        told = {*rig.accumulator.take_resolved()}
        assert told == {*rig.parcels}
        assert all(len(each.failures) <= 1 for each in told)
        number += 1
    assert number > 10


@pytest.mark.parametrize("count", [1, 2])
def test_whatever_is_interrupted_while_records_fail_has_failed_or_fails_next(count: int) -> None:
    codes = {
        each.__code__
        for of in (Accumulator, Queue, Parcel)
        for each in vars(of).values()
        if isinstance(each, FunctionType) and each.__name__ not in {"add", "invariants"}
    }
    is_there, number = True, 0
    while is_there:
        rig = Rig(message_bytes_max=400)
        rig.add([0])
        rig.settle()
        large, small = rig.add([0] * count, size=500), rig.add([0])
        is_there = is_interrupted(rig.drain, codes, number)
        if rig.accumulator.gone:
            rig.accumulator.gone.clear()
            rig.lose(0)
        rig.settle()
        assert all(isinstance(large.error_of(row), RecordTooLarge) for row in range(count))
        assert len(large.failures) == count
        assert small.delivery(0).offset == 1
        assert not rig.accumulator.buffered_bytes
        number += 1
    assert number > 10
