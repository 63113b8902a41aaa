"""Requests without an answer, by broker and in order; channels to close are reported once."""

import pytest

from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue
from smq.client.producing.batching.expiry import EXPIRY_CHECK_MS
from smq.client.producing.batching.in_flight import (
    ANSWER_MS_MAX,
    CORRELATION_ID_MAX,
    InFlightRequests,
    LostChannels,
)
from tests.client.accumulator_rig import NODE, Rig
from tests.client.parcels import closed


def test_a_broker_that_is_silent_for_too_long_is_named() -> None:
    rig = Rig()
    rig.add([0])
    rig.drain()
    assert rig.accumulator.take_lost(ANSWER_MS_MAX) == set()
    rig.accumulator.expire(ANSWER_MS_MAX)
    assert rig.accumulator.next_due_ms(ANSWER_MS_MAX) == ANSWER_MS_MAX + EXPIRY_CHECK_MS
    assert rig.accumulator.take_lost(ANSWER_MS_MAX + 1) == {NODE}


@pytest.fixture
def queue() -> PartitionQueue:
    made = PartitionQueue("t", 0, "test")
    made.learn(NODE, 1000)
    return made


def batch(queue: PartitionQueue) -> ParcelBatch:
    made = ParcelBatch(closed([(b"a", 0)]), 0, 1)
    queue.stamp(made, 100)
    return made


def test_answers_belong_to_the_oldest_request(queue: PartitionQueue) -> None:
    in_flight, one, two = InFlightRequests(), batch(queue), batch(queue)
    assert in_flight.oldest(NODE) is None
    assert in_flight.next_id() == 1
    in_flight.add(queue, one, 5)
    in_flight.add(queue, two, 6)
    assert (in_flight.last_id, one.sent_ms, two.sent_ms) == (2, 5, 6)
    assert in_flight.oldest(NODE) == (1, queue, one)
    in_flight.remove_oldest(NODE)
    assert in_flight.oldest(NODE) == (2, queue, two)
    assert queue.in_flight == [two]


def test_a_request_that_was_not_sent_is_removed(queue: PartitionQueue) -> None:
    in_flight, one, two = InFlightRequests(), batch(queue), batch(queue)
    in_flight.add(queue, one, 0)
    in_flight.add(queue, two, 0)
    assert in_flight.remove_last(queue) is two
    assert queue.in_flight == [one]
    assert [each for _, _, each in in_flight.all()] == [one]


def test_remove_half_added_removes_only_a_half_added_request(
    queue: PartitionQueue,
) -> None:
    in_flight, one, two = InFlightRequests(), batch(queue), batch(queue)
    in_flight.add(queue, one, 0)
    queue.in_flight.append(two)  # And then came an interrupt.
    assert not in_flight.remove_half_added(queue, one)
    assert in_flight.remove_half_added(queue, two)
    assert queue.in_flight == [one]


def test_of_a_lost_channel_nothing_is_in_flight(queue: PartitionQueue) -> None:
    in_flight, one, two = InFlightRequests(), batch(queue), batch(queue)
    in_flight.add(queue, one, 0)
    in_flight.add(queue, two, 0)
    assert [each for _, _, each in in_flight.remove_all(NODE)] == [one, two]
    assert (queue.in_flight, in_flight.all(), in_flight.remove_all(NODE)) == ([], [], [])


def test_ids_begin_again_before_they_are_negative(queue: PartitionQueue) -> None:
    in_flight = InFlightRequests()
    in_flight.last_id = CORRELATION_ID_MAX
    assert in_flight.next_id() == 0
    in_flight.add(queue, batch(queue), 0)
    assert in_flight.last_id == 0


def test_lost_channels_are_taken_once() -> None:
    lost = LostChannels()
    assert not lost
    lost.add(1)
    lost.add_too_small(2, 5000)
    assert lost
    assert lost.take() == {1, 2}
    assert not lost
    assert lost.take() == set()


def test_the_size_that_a_channel_must_take_stays_known() -> None:
    lost = LostChannels()
    lost.add_too_small(2, 5000)
    lost.take()
    assert (lost.request_bytes(1), lost.request_bytes(2)) == (0, 5000)
