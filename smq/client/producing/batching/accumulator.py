"""Which batch is sent when, with which sequence, and what its answer means: a producer without IO.

    parcel ─add→ queue of a partition: waiting ─drain→ in flight ─answered→ resolved
                                          ↑               │ retriable error, channel lost
                                          └───────────────┘

A batch that was sent once keeps its rows, epoch and sequence, so that the broker recognizes it when
it is sent again. Three rules keep a partition's records in order and without duplicates:

- Batches are sent again one at a time, the oldest first, once nothing is in flight any more.
- Until the broker has acknowledged a first batch only one is in flight. A broker that does not know
  a producer takes any sequence, so a second batch could get in before a first that was refused.
 - When a sequence is refused while nothing older is unresolved, the broker knows less than the
  producer assumed (a batch failed for good, or the broker lost its last ones). It cannot have
  appended anything after that batch, so all batches restart at sequence 0 of the next epoch.

Retriable errors are retried until the parcel's deadline. All others fail the batch's rows, and a
broker that does not take our login, or that proves not to be ours, those of all that wait for it.

At its deadline a batch's rows fail wherever it is. If it is unknown whether the broker has the
batch, a later one that was lost with it and whose sequence is then refused fails too, instead of
beginning a new epoch: a broker that was only stalled may still read both from its inbox.

A channel that can never take a request is treated as lost, and replaced by one that can.
"""

from collections.abc import Callable, Sequence

from smq.client.errors import AuthenticationFailed
from smq.client.producing.batching.answers import AnswerHandler
from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue
from smq.client.producing.batching.batch_sender import BatchSender
from smq.client.producing.batching.expiry import Expiry
from smq.client.producing.batching.in_flight import InFlightRequests
from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.batching.pending_parcels import PendingParcels
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.encode.batch_writer import BatchWriter


class Accumulator:
    """All batches of a producer. Times are monotonic; the parts are each in a file of their own.

    pending  the parcels that it has and that are not resolved
    lost     brokers whose channel is useless now: the caller closes it
    queues   the batches to send, by partition, and which topics' metadata is out of date
    """

    def __init__(
        self,
        client_id: str,
        producer: tuple[int, int],
        writer: BatchWriter,
        batch_bytes: int,
        transactional_id: str | None = None,
    ) -> None:
        producer_id, first_epoch = producer
        self.pending = PendingParcels()
        self.queues = PartitionQueues(client_id, first_epoch, self.pending, transactional_id)
        self._in_flight = in_flight = InFlightRequests()
        self.lost = in_flight.lost
        self._sender = BatchSender(self.queues, in_flight, producer_id, writer, batch_bytes)
        self._answers = AnswerHandler(self.queues, in_flight)
        self._expiry = Expiry(self.queues, in_flight)
        # The parts' own functions: a call less for each record and batch.
        self.send_single, self.drain = self._sender.send_single, self._sender.drain
        self.answered = self._answers.answered

    def learn(self, topic: str, leaders: Sequence[int], message_bytes_max: int) -> None:
        """Take a topic's metadata."""
        self.queues.learn(topic, leaders, message_bytes_max)

    def add(self, parcel: Parcel) -> None:
        """Take a closed parcel once, as a whole even if interrupted."""
        if not parcel.unresolved or parcel in self.pending:
            return
        parts = list(parcel.by_partition())
        left = iter(
            [
                (self.queues.get(parcel.topic, partition), ParcelBatch(parcel, first, end))
                for partition, first, end in parts
            ]
        )
        try:
            self.pending.add(parcel)
            self.queues.enqueue(left)
        except BaseException:
            if parcel in self.pending:  # Else it was not taken.
                self.queues.enqueue(left)
            raise

    def channel_lost(self, node_id: int, now_ms: int) -> None:
        """The channel to a broker is closed: send again what it has not answered."""
        self._answers.channel_lost(node_id, now_ms)

    def take_lost(self, now_ms: int) -> set[int]:
        """Brokers whose channel is to be closed, and those that have not answered for too long."""
        return self.lost.take() | self._in_flight.overdue(now_ms)

    def expire(self, now_ms: int) -> None:
        """Fail rows beyond their deadline."""
        self._expiry.expire(now_ms)

    def abandon(self, reason: Exception | None) -> None:
        """Fail all rows not in flight, now and with each `expire`; None: stop that."""
        self._expiry.abandon(reason)

    def begin_as(self, producer_id: int, epoch: int) -> None:
        """Use this producer id and epoch from now on. Nothing may be pending."""
        self._sender.producer_id = producer_id
        self.queues.begin_as(epoch)

    def fail_topic(self, topic: str) -> None:
        """The topic has been deleted: fail its waiting batches."""
        self._expiry.fail_topic(topic)

    def fail_unauthenticated(
        self, is_meant: Callable[[PartitionQueue], bool], reason: AuthenticationFailed
    ) -> None:
        """No broker that some queues wait for takes us, or proves who it is: fail what waits."""
        self._expiry.fail_unauthenticated(is_meant, reason)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When the next batch expires or may be resent, if nothing else happens."""
        return self._expiry.next_due_ms(now_ms)

    def invariants(self) -> None:
        """Assert them."""
        self.queues.invariants()
        self.pending.invariants()
