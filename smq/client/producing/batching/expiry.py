"""Deadlines: rows that are not acknowledged in time fail, wherever they are."""

from collections.abc import Callable

from smq.client.errors import AuthenticationFailed, NoSuchTopic
from smq.client.names import TopicPartition
from smq.client.producing.batching import failures
from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue
from smq.client.producing.batching.in_flight import InFlightRequests
from smq.client.producing.batching.partition_queues import PartitionQueues

EXPIRY_CHECK_MS = 250  # How often the deadlines of batches in flight are checked.


class Expiry:
    """Fails the rows of waiting batches, and of those in flight."""

    def __init__(self, queues: PartitionQueues, in_flight: InFlightRequests) -> None:
        self._pending, self._queues, self._in_flight = queues.pending, queues, in_flight
        self._check_at_ms = 0  # When to check batches in flight.
        self._abandoned: Exception | None = None

    def expire(self, now_ms: int) -> None:
        """Fail rows beyond their parcel's deadline."""
        self._fail_abandoned()
        for queue in self._queues.ready():
            while queue.to_resend or queue.waiting:
                batch = queue.next()
                if batch.parcel.deadline_ms > now_ms:
                    break
                queue.note_failed(batch)
                self._queues.fail_next(queue, batch, failures.expired(queue, batch), batch.end)
        if now_ms >= self._check_at_ms:
            self._check_at_ms = now_ms + EXPIRY_CHECK_MS
            for _, queue, batch in self._in_flight.all():
                if batch.parcel.deadline_ms <= now_ms and not batch.is_expired:
                    self._expire_in_flight(queue, batch)

    def _expire_in_flight(self, queue: PartitionQueue, batch: ParcelBatch) -> None:
        """Fail the rows only. The batch stays in flight: later ones rely on its sequence."""
        batch.is_expired = batch.is_in_doubt = True
        if not batch.parcel.is_settled(batch.first):
            batch.parcel.fail(batch.first, batch.end, failures.expired(queue, batch))
        self._pending.note_resolved(batch.parcel)

    def abandon(self, reason: Exception | None) -> None:
        """From now on fail batches instead of sending them; None: stop that."""
        self._abandoned = reason
        self._fail_abandoned()

    def _fail_abandoned(self) -> None:
        if self._abandoned is None:
            return
        for queue in self._queues.ready():
            self._queues.fail([TopicPartition(queue.topic, queue.partition)], self._abandoned)

    def fail_topic(self, topic: str) -> None:
        """The topic has been deleted: fail its waiting batches."""
        for queue in self._queues.ready():
            while queue.topic == topic and (queue.to_resend or queue.waiting):
                batch = queue.next()
                self._queues.fail_next(queue, batch, NoSuchTopic(topic), batch.end)
        self._queues.drop_stale(topic)

    def fail_unauthenticated(
        self, is_meant: Callable[[PartitionQueue], bool], reason: AuthenticationFailed
    ) -> None:
        """No broker that some queues wait for takes us, or proves who it is: fail what waits."""
        for queue in filter(is_meant, self._queues.ready()):
            while queue.to_resend or queue.waiting:
                batch = queue.next()
                queue.note_failed(batch)
                error = failures.unauthenticated(queue, batch, reason)
                self._queues.fail_next(queue, batch, error, batch.end)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When the next batch expires or may be resent, if nothing else happens."""
        times = [self._check_at_ms] if self._in_flight else []
        for queue in self._queues.ready():
            times.append(queue.next().parcel.deadline_ms)
            if queue.retry_at_ms > now_ms and not queue.in_flight:
                times.append(queue.retry_at_ms)
        return min(times, default=None)
