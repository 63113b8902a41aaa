"""Partitions are enlisted before anything is sent to them, or what waits for them fails."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

import pytest

from smq.client.clock import SYSTEM_CLOCK
from smq.client.names import TopicPartition
from smq.client.producing.batching.batch_queue import ParcelBatch
from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.batching.pending_parcels import PendingParcels
from smq.client.producing.producer_state import ProducerState
from smq.client.producing.transactions.enlisting import Enlisting
from smq.model.errors import BrokerError, ErrorCode
from tests.client.parcels import closed

if TYPE_CHECKING:
    from smq.client.producing.transactions.coordinator import TransactionCoordinator

NAME = TopicPartition("t", 1)


class FakeCoordinator:
    """Notes what it is asked, and answers as the test says."""

    def __init__(self) -> None:
        self.asked: list[TopicPartition] = []
        self.answer: Callable[[], None] = lambda: None

    def add_partitions(self, names: Iterable[TopicPartition]) -> None:
        self.asked += names
        self.answer()


class Rig:
    """Queues of a transactional producer, and who enlists their partitions."""

    def __init__(self) -> None:
        self.coordinator = FakeCoordinator()
        self.queues = PartitionQueues("test", 0, PendingParcels(), "x")
        self.queues.learn("t", [1, 1], 1 << 20)
        coordinator = cast("TransactionCoordinator", self.coordinator)
        self.enlisting = Enlisting(ProducerState(SYSTEM_CLOCK), coordinator, self.queues)

    def put(self) -> ParcelBatch:
        queue = self.queues.get(*NAME)
        batch = ParcelBatch(closed([(b"v", NAME.partition)]), 0, 1)
        self.queues.enqueue([(queue, batch)])
        return batch


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_only_partitions_that_something_is_sent_to_are_enlisted(rig: Rig) -> None:
    assert not rig.enlisting.enlist()
    assert not rig.queues.has_enlisted()
    rig.put()
    assert not rig.queues.get(*NAME).may_send(0)
    assert rig.enlisting.enlist()
    assert rig.coordinator.asked == [NAME]
    assert rig.queues.get(*NAME).may_send(0)
    assert not rig.enlisting.enlist()
    rig.queues.bar()
    assert rig.queues.barred() == [NAME]


def test_a_batch_fails_when_the_coordinator_refuses_its_partition(rig: Rig) -> None:
    batch = rig.put()

    def refuse() -> None:
        raise BrokerError(ErrorCode.INVALID_TXN_STATE)

    rig.coordinator.answer = refuse
    assert rig.enlisting.enlist()
    (failure,) = batch.parcel.failures
    assert "INVALID_TXN_STATE" in str(failure.error)
    assert not rig.queues.has_ready()


def test_an_answer_to_an_ended_transaction_changes_nothing(rig: Rig) -> None:
    rig.put()

    def end() -> None:
        rig.queues.fail([NAME], KeyError())
        rig.queues.begin_as(1)

    rig.coordinator.answer = end
    assert rig.enlisting.enlist()
    rig.put()
    assert rig.queues.barred() == [NAME]
