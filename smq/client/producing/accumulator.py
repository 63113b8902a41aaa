"""Which batch goes when, in which sequence, and what an answer means: a producer without any IO.

    parcel ─add→ queue of a partition: waiting ─drain→ in flight ─answered→ resolved
                                          ↑               │ error that passes, channel lost
                                          └───────────────┘

A batch that has once been sent keeps its rows, epoch and sequence, so the broker knows a repetition
from something new. Three rules keep a partition's records in order and single:

- Batches are sent again one at a time, the oldest first, once nothing is in flight any more.
- Until the broker has acknowledged a first batch only one is in flight: a broker that knows nothing
  of a producer takes any sequence, so a second batch could get in before a first that was refused.
- A sequence that is refused while nothing older is unresolved says that the broker knows less than
  we thought (a batch failed for good, or the broker lost its last ones). Nothing behind it can
  have been taken, so all of it begins again at sequence 0 of the next epoch.

Errors that pass are met again until the parcel's deadline, those that do not fail the batch's rows.

At its deadline a batch's rows fail wherever it is. If nobody knows whether the broker has it, a
later one that was lost with it and whose sequence is then refused fails too, instead of beginning
again: a broker that only slept may yet read both from where they lie.

A request that a channel can never take has it replaced by one that can, as if it were lost.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.client.errors import (
    BrokerUnavailable,
    ChannelGone,
    NoSuchTopic,
    RecordTooLarge,
    ReferenceRejected,
)
from smq.client.kafka.cluster import PASSING
from smq.client.producing.batch_queue import NEVER_SENT, Batch, Queue
from smq.client.producing.batch_writer import BatchWriter, Stamp, Written
from smq.client.producing.channel import (
    REQUEST_BYTES_MAX,
    Answer,
    Channel,
    put_head,
    read_answer,
)
from smq.client.producing.parcel import Parcel
from smq.client.producing.single import Single
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.codec import Malformed

RETRY_MS = 100  # Kafka's retry.backoff.ms.
ANSWER_MS_MAX = 45_000  # Above PRODUCE_TIMEOUT_MS: a broker that is silent for so long is gone.
SEQUENCE_END = 2**31  # Sequences begin again at 0 after 2^31 - 1.
EPOCH_MAX = 2**15 - 1
LOOK_MS = 250  # Deadlines of what is in flight are looked at so often.

_PASSING = PASSING | {ErrorCode.NETWORK_EXCEPTION, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
_TAKEN = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
_SEQUENCE_REFUSED = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


class Accumulator:
    """All queues of a producer. Times are monotonic.

    `stale` names the topics whose metadata should be asked for, `gone` the brokers whose channel
    was found to be gone, or too narrow: `request_bytes` says what the next one must take at least;
    `resolved` collects the parcels of which rows have met their fate, until somebody takes them.
    """

    def __init__(
        self, client_id: str, producer: tuple[int, int], writer: BatchWriter, batch_bytes: int
    ) -> None:
        self.stale: set[str] = set()
        self.gone: set[int] = set()
        self.request_bytes: dict[int, int] = {}
        self.resolved: dict[Parcel | Single, None] = {}
        self.buffered_bytes = 0
        self.parcels: dict[Parcel | Single, None] = {}
        self.on_way: dict[str, int] = {}  # Parcels by topic.
        self._client_id = client_id
        self._producer_id, self._first_epoch = producer
        self._writer = writer
        self._batch_bytes = batch_bytes
        self._queues: dict[tuple[str, int], Queue] = {}
        self._ready: dict[Queue, None] = {}  # Those with something to send, now or later.
        self._owed: dict[int, deque[tuple[int, Queue, Batch]]] = {}
        self._last_id = 0
        self._look_ms = 0  # When to look at deadlines of what is in flight.

    def learn(self, topic: str, leaders: Sequence[int], message_bytes_max: int) -> None:
        """What Metadata says of a topic."""
        for partition, leader in enumerate(leaders):
            queue = self._queue(topic, partition)
            if queue.leader != leader:
                queue.leader, queue.retry_ms = leader, 0
            queue.message_bytes_max, queue.is_doubtful = message_bytes_max, False
        self.stale.discard(topic)

    def _queue(self, topic: str, partition: int) -> Queue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = Queue(topic, partition, self._client_id)
            queue.epoch = self._first_epoch
        return queue

    def add(self, parcel: Parcel) -> None:
        """Take a closed parcel, if it was not taken; all of it, whatever interrupts."""
        if not parcel.unresolved or parcel in self.parcels:
            return
        stretches = list(parcel.stretches())
        left = iter(
            [(self._queue(parcel.topic, each[0]), Batch(parcel, *each[1:])) for each in stretches]
        )
        try:
            self._take(parcel)
            self._enqueue(left)
        except BaseException:
            if parcel in self.parcels:  # Else it was not taken.
                self._enqueue(left)
            raise

    def _enqueue(self, batches: Iterator[tuple[Queue, Batch]]) -> None:
        for queue, batch in batches:
            self._ready[queue] = None
            queue.waiting.append(batch)

    def _take(self, parcel: Parcel | Single) -> None:
        on_way = self.on_way.get(parcel.topic, 0)  # The rest is one step: no calls, no interrupts.
        self.parcels[parcel] = None
        self.buffered_bytes += parcel.bytes
        self.on_way[parcel.topic] = on_way + 1

    def send_single(self, single: Single, channels: Mapping[int, Channel], now_ms: int) -> bool:
        """Take a record and send it, if nothing stands before it; whether that was done."""
        queue = self._queue(single.topic, single.partition)
        channel, one, size = channels.get(queue.leader), single.rows, single.bytes
        if channel is None or one is None or not (self._writer.is_plain and queue.is_free(now_ms)):
            return False
        if size + BATCH_HEADER_BYTES > queue.message_bytes_max or queue.epoch > EPOCH_MAX:
            return False
        room = len(queue.head) + BATCH_HEADER_BYTES + size
        if room > channel.request_bytes_max:
            return False
        batch, stamp = Batch(single, 0, 1), Stamp(self._producer_id, queue.epoch, queue.sequence)
        try:
            self._take(single)
            self._stamp(queue, batch, stamp, size + BATCH_HEADER_BYTES)
            self._note_sent(queue, batch, now_ms)
            if not channel.send_one(room, queue.head_data, self._last_id, one, stamp):
                self._owed[queue.leader].pop()
                queue.take_back(queue.in_flight.pop())
                self._keep_ready(queue)
        except ChannelGone:
            self._send_again(queue, batch)
        except BaseException:
            self._send_again(queue, batch)
            raise
        return True

    def _send_again(self, queue: Queue, batch: Batch) -> None:
        """Sending a batch was interrupted: nobody knows what was taken, or noted of it.

        The channel is given up, so that all it owes is sent again, as what it may be by then.
        """
        self.gone.add(queue.leader)
        owed = self._owed.get(queue.leader, ())
        if not any(each is batch for _, _, each in owed):
            queue.in_flight = [each for each in queue.in_flight if each is not batch]
            if batch.parcel in self.parcels and batch not in {*queue.again, *queue.waiting}:
                queue.put_back(batch)
        self._keep_ready(queue)

    def drain(self, channels: Mapping[int, Channel], now_ms: int) -> None:
        """Write all that may go now into the channels to the leaders."""
        shut = set[int]()
        for queue in list(self._ready):
            if queue.leader < 0:
                self.stale.add(queue.topic)
            while queue.leader not in shut and queue.may_send(now_ms):
                try:
                    if not self._send_next(queue, channels.get(queue.leader), now_ms):
                        shut.add(queue.leader)
                except ChannelGone:
                    self.gone.add(queue.leader)
                    shut.add(queue.leader)
            self._keep_ready(queue)

    @property
    def has_waiting(self) -> bool:
        """Whether something is yet to be sent."""
        return bool(self._ready)

    def leaders_wanted(self) -> set[int]:
        """Brokers to which something waits."""
        return {queue.leader for queue in self._ready if queue.leader >= 0}

    def _send_next(self, queue: Queue, channel: Channel | None, now_ms: int) -> bool:
        """Send, or fail, the next batch; False: the channel takes nothing now."""
        batch = queue.next()
        parcel, part, is_new = batch.parcel, (batch.first, batch.end), batch.ordinal == NEVER_SENT
        if queue.epoch > EPOCH_MAX:
            self._fail(queue, batch, _out_of_epochs(), batch.end)
            return True
        one = parcel.bound(batch.first, batch.first + 1)
        if is_new and self._writer.least_bytes(one) > queue.message_bytes_max:
            self._fail(queue, batch, self._too_large(queue, batch), batch.first + 1)
            return True
        if channel is None:
            return False
        bytes_max = self._bytes_max(queue, channel) if is_new else batch.size_bytes
        size = len(queue.head) + self._writer.room(parcel.bound(*part), one, bytes_max)
        if size > channel.request_bytes_max:
            return self._outgrow(queue, batch, size)
        epoch, sequence = (queue.epoch, queue.sequence) if is_new else (batch.epoch, batch.sequence)
        stamp = Stamp(self._producer_id, epoch, sequence)
        written = self._write(queue, batch, stamp, bytes_max, channel, size)
        if written is None:
            return False
        try:
            if is_new:
                self._depart(queue, batch, written, stamp)
            else:
                assert written.row == batch.end
                queue.again.pop(0)
            self._note_sent(queue, batch, now_ms)
            channel.commit(written.end)
        except BaseException:
            self._send_again(queue, batch)
            raise
        return True

    def _outgrow(self, queue: Queue, batch: Batch, size: int) -> bool:
        """The channel can never take the next batch, nor its first record alone if it is new."""
        if size > REQUEST_BYTES_MAX:
            error = RecordTooLarge(f"a request of up to {size} bytes: send it by reference")
            self._fail(queue, batch, error, batch.first + 1)
            return True
        self.request_bytes[queue.leader] = size
        self.gone.add(queue.leader)
        return False

    def _bytes_max(self, queue: Queue, channel: Channel) -> int:
        """Of a new batch, before compression."""
        fitting = self._writer.bytes_max_in(channel.request_bytes_max - len(queue.head))
        return min(self._batch_bytes, queue.message_bytes_max, fitting)

    def _write(  # noqa: PLR0913, PLR0917  (as a kernel)
        self,
        queue: Queue,
        batch: Batch,
        stamp: Stamp,
        bytes_max: int,
        channel: Channel,
        size: int,
    ) -> Written | None:
        """Write a request into a channel, if it has `size` bytes of room."""
        rows = batch.parcel.rows
        assert rows is not None
        if (out := channel.reserve(size)) is None:
            return None
        part = batch.first, batch.end
        written = self._writer.write(rows, part, stamp, bytes_max, out, len(queue.head))
        put_head(out, queue.head, written.end, self._next_id())
        return written

    def _next_id(self) -> int:
        return (self._last_id + 1) & 0x7FFFFFFF

    def _note_sent(self, queue: Queue, batch: Batch, now_ms: int) -> None:
        """A batch is in flight, or will be at once, as the next request."""
        self._last_id = self._next_id()
        batch.sent_ms = now_ms
        queue.in_flight.append(batch)
        self._owed.setdefault(queue.leader, deque()).append((self._last_id, queue, batch))

    def _depart(self, queue: Queue, batch: Batch, written: Written, stamp: Stamp) -> None:
        """A new batch ends where it was cut; the rest waits as another."""
        if written.row < batch.end:
            rest = Batch(batch.parcel, written.row, batch.end)
            queue.waiting[0] = rest  # One step with the next: no calls, no interrupts.
            batch.end = written.row
        else:
            queue.waiting.popleft()
        self._stamp(queue, batch, stamp, written.size_bytes)

    @staticmethod
    def _stamp(queue: Queue, batch: Batch, stamp: Stamp, size_bytes: int) -> None:
        """A new batch has its place from now on."""
        batch.size_bytes = size_bytes
        batch.epoch, batch.sequence = stamp.epoch, stamp.sequence
        batch.ordinal = queue.next_ordinal
        queue.next_ordinal += 1
        queue.sequence = (stamp.sequence + batch.end - batch.first) % SEQUENCE_END

    def answered(self, node_id: int, data: bytes, now_ms: int) -> None:
        """A broker's answer to the oldest request that has none. Raises Malformed.

        Who is interrupted in it, or before it has all that the broker answered, has the broker
        `lost`: what has met its fate by then is known, all else is sent again.
        """
        owed = self._owed.get(node_id)
        if not owed:
            raise Malformed(f"broker {node_id} answers, and was not asked")
        correlation_id, queue, batch = owed[0]
        answer = read_answer(data, queue.answer_format)
        if answer.correlation_id != correlation_id:
            raise Malformed(f"broker {node_id} answers what was not asked: {answer.correlation_id}")
        self._judge(queue, batch, answer, now_ms)
        place = queue.in_flight.index(batch)
        del queue.in_flight[place], owed[0]  # One step: no calls, no interrupts.
        self._settled(queue, batch.parcel)

    def _judge(self, queue: Queue, batch: Batch, answer: Answer, now_ms: int) -> None:
        code, parcel = answer.error_code, batch.parcel
        if code in _TAKEN:
            queue.note_taken(batch)
            if not batch.is_given_up:
                is_new = code == ErrorCode.NONE
                found = (answer.base_offset, answer.append_time_ms) if is_new else (-1, -1)
                parcel.resolve(batch.first, batch.end, *found)
        elif code in _PASSING:
            self.stale.add(queue.topic)
            queue.doubt(now_ms + RETRY_MS)
            if not batch.is_given_up:
                queue.take_back(batch)
        elif batch.is_given_up:
            return
        elif code in _SEQUENCE_REFUSED:
            self._refused(queue, batch)
        else:
            queue.note_failed(batch)
            parcel.fail(batch.first, batch.end, self._error(queue, batch, answer))

    @staticmethod
    def _refused(queue: Queue, batch: Batch) -> None:
        """A sequence is refused: of a batch that comes too early, or must begin again."""
        older = [each for each in [*queue.again, *queue.in_flight] if each < batch]
        if not older and queue.given_up != NEVER_SENT and batch.is_in_doubt:
            batch.parcel.fail(batch.first, batch.end, _late(queue, batch))
            return
        batch.is_refused = not older
        queue.take_back(batch)

    def lost(self, node_id: int, now_ms: int) -> None:
        """The channel to a broker is gone: what it owed may have been taken or not."""
        for _, queue, batch in self._owed.pop(node_id, ()):
            queue.in_flight.remove(batch)
            batch.is_refused, batch.is_in_doubt = False, True
            if batch.is_given_up:
                queue.note_failed(batch)
            if not batch.parcel.is_settled(batch.first):
                queue.take_back(batch)
            queue.doubt(now_ms + RETRY_MS)
            self.stale.add(queue.topic)
        for queue in self._queues.values():  # Also what an interrupt has left undone.
            queue.begin_epoch_if_refused()
            self._keep_ready(queue)
        for parcel in list(self.parcels):
            self._note_fate(parcel)

    def doubt(self, node_id: int) -> None:
        """A broker cannot be reached: perhaps others lead its partitions by now."""
        self.stale |= {queue.topic for queue in self._ready if queue.leader == node_id}

    def silent(self, now_ms: int) -> list[int]:
        """Brokers that have owed an answer for too long."""
        return [
            node_id
            for node_id, owed in self._owed.items()
            if owed and now_ms - owed[0][2].sent_ms > ANSWER_MS_MAX
        ]

    def expire(self, now_ms: int) -> None:
        """Fail what is beyond its parcel's deadline; what is in flight stays there, unnamed."""
        for queue in list(self._ready):
            while queue.again or queue.waiting:
                batch = queue.next()
                if batch.parcel.deadline_ms > now_ms:
                    break
                queue.note_failed(batch)
                self._fail(queue, batch, _late(queue, batch), batch.end)
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            for _, queue, batch in [each for owed in self._owed.values() for each in owed]:
                if batch.parcel.deadline_ms <= now_ms and not batch.is_given_up:
                    self._give_up(queue, batch)

    def _give_up(self, queue: Queue, batch: Batch) -> None:
        """A batch in flight is late. It keeps its place: what comes behind it has its sequence."""
        batch.is_given_up = batch.is_in_doubt = True
        if not batch.parcel.is_settled(batch.first):
            batch.parcel.fail(batch.first, batch.end, _late(queue, batch))
        self._note_fate(batch.parcel)

    def forget(self, topic: str) -> None:
        """The topic is gone: fail what waits for it."""
        for queue in list(self._ready):
            while queue.topic == topic and (queue.again or queue.waiting):
                self._fail(queue, queue.next(), NoSuchTopic(topic), queue.next().end)
        self.stale.discard(topic)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When something may be sent again or expires, if nothing else happens."""
        times = [self._look_ms for owed in self._owed.values() if owed]
        for queue in self._ready:
            times.append(queue.next().parcel.deadline_ms)
            if queue.retry_ms > now_ms and not queue.in_flight:
                times.append(queue.retry_ms)
        return min(times, default=None)

    def _fail(self, queue: Queue, batch: Batch, error: Exception, end: int) -> None:
        """Fail the rows of the next batch before `end`."""
        try:
            batch.parcel.fail(batch.first, end, error)
            self._strike(queue, batch, end)
        except BaseException:
            if batch.parcel.is_settled(end - 1):
                self._strike(queue, batch, end)
            raise

    def _strike(self, queue: Queue, batch: Batch, end: int) -> None:
        """The rows of a batch before `end` have failed. Again, it does nothing."""
        batch.first = end
        if end == batch.end:
            queue.remove(batch)
        self._settled(queue, batch.parcel)

    def _settled(self, queue: Queue, parcel: Parcel | Single) -> None:
        """Rows of a parcel may have met their fate, and the queue may go on."""
        queue.begin_epoch_if_refused()
        self._keep_ready(queue)
        self._note_fate(parcel)

    def _note_fate(self, parcel: Parcel | Single) -> None:
        self.resolved[parcel] = None  # One step from here on: no calls, no interrupts.
        if not parcel.unresolved and parcel in self.parcels:
            del self.parcels[parcel]
            self.buffered_bytes -= parcel.bytes
            self.on_way[parcel.topic] -= 1

    def _keep_ready(self, queue: Queue) -> None:
        if queue.again or queue.waiting:
            self._ready[queue] = None
        else:
            self._ready.pop(queue, None)

    def take_resolved(self) -> Iterator[Parcel | Single]:
        """The parcels of which rows have met their fate since this was last asked."""
        resolved, self.resolved = self.resolved, {}
        return iter(resolved)

    def _too_large(self, queue: Queue, batch: Batch) -> RecordTooLarge:
        one = batch.parcel.bound(batch.first, batch.first + 1)
        return RecordTooLarge(
            f"a record of {self._writer.least_bytes(one)} bytes, and {queue.topic} takes batches "
            f"of {queue.message_bytes_max}: raise its max.message.bytes, or send it by reference"
        )

    def _error(self, queue: Queue, batch: Batch, answer: Answer) -> BrokerError:
        if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE and batch.end - batch.first == 1:
            return self._too_large(queue, batch)
        try:
            code = ErrorCode(answer.error_code)
        except ValueError:
            return BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's error code {answer.error_code}"
            )
        if code is ErrorCode.INVALID_RECORD and answer.error_message is not None:
            return ReferenceRejected(answer.error_message)
        return BrokerError(code, answer.error_message or _SENTENCES.get(code))

    def invariants(self) -> None:
        """Assert them."""
        for queue in self._queues.values():
            queue.invariants()
            assert (queue in self._ready) == bool(queue.waiting or queue.again)
        assert self.buffered_bytes == sum(parcel.bytes for parcel in self.parcels)
        assert sum(self.on_way.values()) == len(self.parcels)


_SENTENCES = {
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is further from the broker's time than the "
    "topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
}


def _late(queue: Queue, batch: Batch) -> BrokerUnavailable:
    place = f"{queue.topic}-{queue.partition}"
    if batch.is_in_doubt:
        return BrokerUnavailable(f"{place} has not answered in time: it may have the record")
    return BrokerUnavailable(f"{place} took nothing in time")


def _out_of_epochs() -> BrokerError:
    reason = "the producer has used up its epochs: open another one"
    return BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, reason)
