"""Handles a broker's answer to a batch, or the certainty that none will come."""

from smq.client.kafka.cluster import PASSING
from smq.client.producing.batching import failures
from smq.client.producing.batching.batch_queue import NEVER_SENT, ParcelBatch, PartitionQueue
from smq.client.producing.batching.in_flight import InFlightRequests
from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.channel.produce_request import ProduceAnswer, read_answer
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.model.errors import ErrorCode
from smq.wire.codec import Malformed

RETRY_MS = 100  # Kafka's retry.backoff.ms.

_RETRIABLE = PASSING | {ErrorCode.NETWORK_EXCEPTION, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
_APPENDED = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
_SEQUENCE_REFUSED = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


class AnswerHandler:
    """Resolves the rows of batches in flight, or has the batches sent again."""

    def __init__(self, queues: PartitionQueues, in_flight: InFlightRequests) -> None:
        self._pending, self._queues, self._in_flight = queues.pending, queues, in_flight

    def answered(self, node_id: int, data: bytes, now_ms: int) -> None:
        """Take a broker's answer to the oldest request that has none. Raises Malformed.

        If this is interrupted, or not called for every answer, the broker's channel must be given
        up (`channel_lost`): resolved rows stay resolved, all others are sent again.
        """
        request = self._in_flight.oldest(node_id)
        if request is None:
            raise Malformed(f"broker {node_id} sent an answer without a request")
        correlation_id, queue, batch = request
        answer = read_answer(data, queue.answer_format)
        if answer.correlation_id != correlation_id:
            raise Malformed(
                f"broker {node_id} answered request {answer.correlation_id} instead of "
                f"{correlation_id}"
            )
        self._judge(queue, batch, answer, now_ms)
        self._in_flight.remove_oldest(node_id)
        self._queues.note_resolved(queue, batch.parcel)

    def _judge(
        self, queue: PartitionQueue, batch: ParcelBatch, answer: ProduceAnswer, now_ms: int
    ) -> None:
        code, parcel = answer.error_code, batch.parcel
        if code in _APPENDED:
            queue.note_acknowledged(batch)
            if not batch.is_expired:
                is_new = code == ErrorCode.NONE
                found = (answer.base_offset, answer.append_time_ms) if is_new else (-1, -1)
                parcel.resolve(batch.first, batch.end, *found)
        elif code in _RETRIABLE:
            self._queues.mark_stale(queue.topic)
            queue.back_off(now_ms + RETRY_MS)
            queue.last_failure = ErrorCode(code).name
            if not batch.is_expired:
                queue.requeue(batch)
        elif batch.is_expired:
            return
        elif code in _SEQUENCE_REFUSED and not queue.is_transactional:
            self._sequence_refused(queue, batch)
        else:
            queue.note_failed(batch)
            parcel.fail(batch.first, batch.end, _error(queue, batch, answer))

    @staticmethod
    def _sequence_refused(queue: PartitionQueue, batch: ParcelBatch) -> None:
        """The batch overtook an older one, or must restart in a new epoch."""
        older = [each for each in [*queue.to_resend, *queue.in_flight] if each < batch]
        if not older and queue.last_failed_in_doubt != NEVER_SENT and batch.is_in_doubt:
            batch.parcel.fail(batch.first, batch.end, failures.expired(queue, batch))
            return
        batch.is_refused = not older
        queue.requeue(batch)

    def channel_lost(self, node_id: int, now_ms: int) -> None:
        """No more answers come from a broker: it may have appended the unanswered batches."""
        for _, queue, batch in self._in_flight.remove_all(node_id):
            batch.is_refused, batch.is_in_doubt = False, True
            if batch.is_expired:
                queue.note_failed(batch)
            if not batch.parcel.is_settled(batch.first):
                queue.requeue(batch)
            queue.back_off(now_ms + RETRY_MS)
            self._queues.mark_stale(queue.topic)
        for queue in self._queues:  # Also finishes interrupted work.
            queue.bump_epoch_if_refused()
            self._queues.update_ready(queue)
        for parcel in self._pending:
            self._pending.note_resolved(parcel)


def _error(queue: PartitionQueue, batch: ParcelBatch, answer: ProduceAnswer) -> Exception:
    if answer.error_code == ErrorCode.MESSAGE_TOO_LARGE and batch.end - batch.first == 1:
        size_bytes = BatchWriter.least_bytes(batch.parcel.bound(batch.first, batch.end))
        return failures.too_large_for_topic(queue, size_bytes)
    return failures.refused(queue, answer)
