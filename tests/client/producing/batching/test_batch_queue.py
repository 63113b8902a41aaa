"""When a batch may be sent, as far as its partition knows."""

import pytest

from smq.client.producing.batching.batch_queue import IN_FLIGHT_MAX, ParcelBatch, PartitionQueue
from tests.client.parcels import closed

RETRY_MS = 7


def batch(ordinal: int = -1) -> ParcelBatch:
    made = ParcelBatch(closed([(b"a", 0)]), 0, 1)
    made.ordinal = ordinal
    return made


@pytest.fixture
def queue() -> PartitionQueue:
    """Of a partition with a leader that knows the producer."""
    made = PartitionQueue("t", 0, "test")
    made.leader, made.is_producer_known = 1, True
    return made


def test_an_empty_queue_is_free_and_has_nothing_to_send(queue: PartitionQueue) -> None:
    assert queue.is_free(0)
    assert not queue.may_send(0)
    queue.waiting.append(batch())
    assert not queue.is_free(0)
    assert queue.may_send(0)


@pytest.mark.parametrize("lacks", ["leader", "certainty", "time"])
def test_nothing_goes_without_a_leader(queue: PartitionQueue, lacks: str) -> None:
    if lacks == "leader":
        queue.leader = -1
    elif lacks == "certainty":
        queue.is_leader_stale = True
    else:
        queue.retry_at_ms = RETRY_MS
    assert not queue.is_free(RETRY_MS - 1)
    queue.waiting.append(batch())
    assert not queue.may_send(RETRY_MS - 1)
    assert queue.may_send(RETRY_MS) == (lacks == "time")


def test_as_many_follow_as_the_broker_remembers(queue: PartitionQueue) -> None:
    for ordinal in range(IN_FLIGHT_MAX):
        assert queue.is_free(0)
        queue.in_flight.append(batch(ordinal))
        queue.next_ordinal = ordinal + 1
    assert not queue.is_free(0)
    queue.in_flight.pop(0)
    assert queue.is_free(0)
    queue.is_producer_known = False
    assert not queue.is_free(0)


def test_a_batch_to_resend_is_sent_alone_and_before_new_ones(queue: PartitionQueue) -> None:
    queue.waiting.append(batch())
    for ordinal in (1, 0):
        queue.requeue(batch(ordinal))
    assert [each.ordinal for each in queue.to_resend] == [0, 1]
    assert queue.next() is queue.to_resend[0]
    assert queue.may_send(0)
    assert not queue.is_free(0)
    queue.in_flight.append(queue.to_resend.pop(0))
    assert not queue.may_send(0)


def test_behind_a_refused_sequence_all_begins_again_once_nothing_is_in_flight(
    queue: PartitionQueue,
) -> None:
    refused, behind = batch(0), batch(1)
    refused.is_refused = True
    queue.requeue(refused)
    queue.in_flight.append(behind)
    queue.bump_epoch_if_refused()
    assert queue.to_resend == [refused]
    queue.requeue(queue.in_flight.pop())
    queue.bump_epoch_if_refused()
    assert [each.parcel for each in queue.waiting] == [refused.parcel, behind.parcel]
    assert (queue.epoch, queue.sequence, queue.is_producer_known) == (1, 0, False)
    queue.invariants()
