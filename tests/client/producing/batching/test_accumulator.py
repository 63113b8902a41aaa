"""Nothing lost, nothing doubled, nothing reordered, whatever the broker and the channel do."""

import pytest
from hypothesis import given, settings, strategies as st

from smq.client.errors import RecordTooLarge
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.batching.answers import RETRY_MS, AnswerHandler
from smq.client.producing.batching.batch_queue import IN_FLIGHT_MAX, PartitionQueue
from smq.client.producing.batching.batch_sender import BatchSender
from smq.client.producing.batching.expiry import Expiry
from smq.client.producing.batching.in_flight import InFlightRequests, LostChannels
from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.batching.pending_parcels import PendingParcels
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.delivery.single_record import SingleRecord
from smq.model.errors import ErrorCode
from tests.client.accumulator_rig import Rig
from tests.client.accumulator_steps import (
    FOR_GOOD,
    PASSING_WITH_APPEND,
    PASSING_WITHOUT_APPEND,
    STEPS,
    do,
    values,
)
from tests.client.fake_shard import FakeChannel
from tests.client.interrupts import code_of, code_of_classes, is_interrupted

PARTS = (
    Accumulator,
    AnswerHandler,
    BatchSender,
    Expiry,
    InFlightRequests,
    LostChannels,
    PartitionQueues,
    PendingParcels,
)


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_every_record_arrives_once_and_in_order(steps: list[tuple[object, ...]]) -> None:
    rig = Rig(batch_bytes=120)
    for step in steps:
        do(rig, step)
        rig.accumulator.invariants()
    rig.settle()
    rig.check()
    assert rig.accumulator.pending.buffered_bytes == 0


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


@pytest.mark.parametrize("is_single", [True, False], ids=["single", "parcel"])
def test_a_send_interrupted_at_any_place_delivers_each_record_once_or_takes_none(
    *, is_single: bool
) -> None:
    codes = code_of_classes(*PARTS, without={"_give_up_channel", "drain", "invariants"})
    codes |= code_of(FakeChannel.send_one, FakeChannel.commit, FakeChannel.reserve)
    codes |= code_of(PartitionQueue.stamp, PartitionQueue.split_next)
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
        taken = sum(each.row_count for each in rig.accumulator.pending)
        rig.accumulator.invariants()
        if rig.accumulator.lost:
            rig.accumulator.lost.clear()
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
def test_taking_answers_interrupted_at_any_place_is_completed_or_repeated(
    fault: ErrorCode, *, is_single: bool
) -> None:
    codes = code_of_classes(*PARTS, PartitionQueue, Parcel, SingleRecord, without={"invariants"})
    codes |= code_of(FakeChannel.answers)
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
        assert not rig.accumulator.pending.buffered_bytes
        told = {*rig.accumulator.pending.take_changed()}
        assert told == {*rig.parcels}
        assert all(len(each.failures) <= 1 for each in told)
        number += 1
    assert number > 10


@pytest.mark.parametrize("count", [1, 2])
def test_failing_records_interrupted_at_any_place_is_completed_later(count: int) -> None:
    codes = code_of_classes(*PARTS, PartitionQueue, Parcel, without={"add", "invariants"})
    codes |= code_of(InFlightRequests.add, LostChannels.add_too_small)
    is_there, number = True, 0
    while is_there:
        rig = Rig(message_bytes_max=400)
        rig.add([0])
        rig.settle()
        large, small = rig.add([0] * count, size=500), rig.add([0])
        is_there = is_interrupted(rig.drain, codes, number)
        if rig.accumulator.lost:
            rig.accumulator.lost.clear()
            rig.lose(0)
        rig.settle()
        assert all(isinstance(large.error_of(row), RecordTooLarge) for row in range(count))
        assert len(large.failures) == count
        assert small.delivery(0).offset == 1
        assert not rig.accumulator.pending.buffered_bytes
        number += 1
    assert number > 10
