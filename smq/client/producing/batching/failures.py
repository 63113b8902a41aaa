"""The errors with which a producer fails records."""

from smq.client.errors import (
    Act,
    AuthenticationFailed,
    BrokerUnavailable,
    RecordTooLarge,
    ReferenceRejected,
    explained,
)
from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue
from smq.client.producing.channel.produce_request import ProduceAnswer
from smq.model.errors import BrokerError, ErrorCode

_SENTENCES = {
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is further from the broker's time than the "
    "topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms allow",
}


def expired(queue: PartitionQueue, batch: ParcelBatch) -> BrokerUnavailable:
    """A batch is beyond its deadline."""
    place = f"{queue.topic}-{queue.partition}"
    if batch.is_in_doubt:
        return BrokerUnavailable(f"{place} has not answered in time: it may have the record")
    why = f": {queue.last_failure}" if queue.last_failure else ""
    return BrokerUnavailable(f"{place} took nothing in time{why}")


def unauthenticated(
    queue: PartitionQueue, batch: ParcelBatch, reason: AuthenticationFailed
) -> AuthenticationFailed:
    """No broker takes us for who we say we are, or proves who it is, since a batch was sent or
    before that."""
    if not batch.is_in_doubt:
        return reason
    doubt = f"{queue.topic}-{queue.partition} may have the record"
    return AuthenticationFailed(f"{reason.message}; {doubt}")


def out_of_epochs() -> BrokerError:
    """Every epoch of the producer's id has been used."""
    reason = "the producer has used up its epochs: open another one"
    return BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, reason)


def too_large_for_topic(queue: PartitionQueue, size_bytes: int) -> RecordTooLarge:
    """A batch of one record has at least this size, which the topic does not take."""
    return RecordTooLarge(
        f"a record of {size_bytes} bytes, and {queue.topic} takes batches of "
        f"{queue.message_bytes_max}: raise its max.message.bytes, or send it by reference"
    )


def too_large_for_channels(size_bytes: int) -> RecordTooLarge:
    """A record needs a request that no channel takes."""
    return RecordTooLarge(f"a request of up to {size_bytes} bytes: send it by reference")


def refused(queue: PartitionQueue, answer: ProduceAnswer) -> BrokerError:
    """The broker refuses a batch for good."""
    try:
        code = ErrorCode(answer.error_code)
    except ValueError:
        return BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's error code {answer.error_code}"
        )
    if code is ErrorCode.INVALID_RECORD and answer.error_message is not None:
        return ReferenceRejected(answer.error_message)
    act = Act("write to", topic=queue.topic, transactional_id=queue.transactional_id or "")
    return BrokerError(code, explained(code, answer.error_message or _SENTENCES.get(code), act))
