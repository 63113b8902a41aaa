"""Tells the coordinator which partitions a transaction writes to, before sending to them."""

from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.producer_state import ProducerState
from smq.client.producing.transactions.coordinator import TransactionCoordinator
from smq.model.errors import BrokerError, PeerError


class Enlisting:
    """For a producer with a transactional id, whose queues are barred until then."""

    def __init__(
        self, state: ProducerState, coordinator: TransactionCoordinator, queues: PartitionQueues
    ) -> None:
        self._state, self._coordinator, self._queues = state, coordinator, queues

    def enlist(self) -> bool:
        """Enlist the partitions with batches to send; whether there were any.

        The producer's lock must not be held. If the coordinator refuses, their batches fail.
        """
        with self._state.lock:
            epoch, names = self._queues.epoch, self._queues.barred()
        if not names:
            return False
        try:
            self._coordinator.add_partitions(names)
        except (BrokerError, PeerError) as error:
            with self._state.lock:
                self._queues.fail(names, error)
        else:
            with self._state.lock:
                if self._queues.epoch == epoch:  # Else it was for a transaction that has ended.
                    self._queues.unbar(names)
        return True
