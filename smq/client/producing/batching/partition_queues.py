"""The queues of all partitions: those with batches to send, and topics with stale metadata."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy

from smq.client.names import TopicPartition
from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue
from smq.client.producing.batching.pending_parcels import Pending, PendingParcels


class PartitionQueues:
    """Queues by topic and partition. A queue is ready while it has batches to send, now or later.

    With a transactional id queues are barred until their partition belongs to the transaction.
    `pending` are the parcels whose batches they have.
    """

    def __init__(
        self,
        client_id: str,
        first_epoch: int,
        pending: PendingParcels,
        transactional_id: str | None = None,
    ) -> None:
        self._client_id, self._transactional_id = client_id, transactional_id
        self.epoch = first_epoch
        self.pending = pending
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._ready: dict[PartitionQueue, None] = {}
        self._stale: set[str] = set()

    def get(self, topic: str, partition: int) -> PartitionQueue:
        """A partition's queue."""
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = PartitionQueue(
                topic, partition, self._client_id, self.epoch, self._transactional_id
            )
            self._queues[topic, partition] = queue
        return queue

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter([*self._queues.values()])

    # --- metadata --------------------------------------------------------------------------------

    def learn(self, topic: str, leaders: Sequence[int], message_bytes_max: int) -> None:
        """Take a topic's metadata."""
        for partition, leader in enumerate(leaders):
            self.get(topic, partition).learn(leader, message_bytes_max)
        self._stale.discard(topic)

    def mark_stale(self, topic: str) -> None:
        """The topic's metadata must be refreshed."""
        self._stale.add(topic)

    def mark_unreachable(self, node_id: int, reason: Exception) -> None:
        """A broker cannot be reached: others may lead its partitions by now."""
        led = [queue for queue in self._ready if queue.leader == node_id]
        self._stale |= {queue.topic for queue in led}
        for queue in led:
            queue.last_failure = str(reason)

    def note_no_metadata(self, topic: str, reason: Exception) -> None:
        """Nobody has told who leads a topic."""
        for queue in self._ready:
            if queue.topic == topic:
                queue.last_failure = str(reason)

    def drop_stale(self, topic: str) -> None:
        """The topic does not exist: its metadata need not be refreshed."""
        self._stale.discard(topic)

    def stale_topics(self) -> set[str]:
        """The topics whose metadata must be refreshed."""
        return {*self._stale}

    # --- transactions ----------------------------------------------------------------------------

    def barred(self) -> list[TopicPartition]:
        """The partitions with batches to send that do not belong to the transaction yet."""
        if self._transactional_id is None:
            return []
        return [
            TopicPartition(queue.topic, queue.partition) for queue in self._ready if queue.is_barred
        ]

    def unbar(self, names: Iterable[TopicPartition]) -> None:
        """Partitions belong to the transaction from now on."""
        for name in names:
            self._queues[name].is_barred = False

    def bar(self) -> None:
        """A transaction has ended, and the producer's epoch has not risen."""
        for queue in self._queues.values():
            queue.is_barred = True

    def has_enlisted(self) -> bool:
        """Whether any partition belongs to the transaction."""
        return any(not queue.is_barred for queue in self._queues.values())

    def begin_as(self, epoch: int) -> None:
        """Begin with another epoch; nothing is pending. Late answers change nothing."""
        assert not self._ready, "what was not sent is of the transaction that has ended"
        self.epoch = epoch
        for name, queue in self._queues.items():
            self._queues[name] = begun = copy(queue)
            begun.begin(epoch)

    def fail(self, names: Iterable[TopicPartition], error: Exception) -> None:
        """Fail all batches that wait for some partitions."""
        for name in names:
            queue = self._queues[name]
            while queue.to_resend or queue.waiting:
                batch = queue.next()
                self.fail_next(queue, batch, error, batch.end)

    # --- to send ----------------------------------------------------------------------------------

    def enqueue(self, batches: Iterable[tuple[PartitionQueue, ParcelBatch]]) -> None:
        """Append new batches to their queues."""
        for queue, batch in batches:
            self._ready[queue] = None
            queue.waiting.append(batch)

    def update_ready(self, queue: PartitionQueue) -> None:
        """A queue has changed."""
        if queue.to_resend or queue.waiting:
            self._ready[queue] = None
        else:
            self._ready.pop(queue, None)

    def ready(self) -> list[PartitionQueue]:
        """The queues with something to send."""
        return [*self._ready]

    def has_ready(self) -> bool:
        """Whether any batch is left to send."""
        return bool(self._ready)

    def leaders_wanted(self) -> set[int]:
        """Brokers to which batches must be sent."""
        return {queue.leader for queue in self._ready if queue.leader >= 0}

    # --- resolved ---------------------------------------------------------------------------------

    def fail_next(
        self, queue: PartitionQueue, batch: ParcelBatch, error: Exception, end: int
    ) -> None:
        """Fail the rows before `end` of a queue's next batch."""
        try:
            batch.parcel.fail(batch.first, end, error)
            self._drop_rows(queue, batch, end)
        except BaseException:
            if batch.parcel.is_settled(end - 1):
                self._drop_rows(queue, batch, end)
            raise

    def _drop_rows(self, queue: PartitionQueue, batch: ParcelBatch, end: int) -> None:
        """The rows before `end` of a batch have failed. A second call does nothing."""
        batch.first = end
        if end == batch.end:
            queue.remove(batch)
        self.note_resolved(queue, batch.parcel)

    def note_resolved(self, queue: PartitionQueue, parcel: Pending) -> None:
        """Rows of a parcel may have been resolved, and the queue may continue."""
        queue.bump_epoch_if_refused()
        self.update_ready(queue)
        self.pending.note_resolved(parcel)

    def invariants(self) -> None:
        """Assert them."""
        for queue in self._queues.values():
            queue.invariants()
            assert (queue in self._ready) == bool(queue.waiting or queue.to_resend)
