"""What the SDK raises, beside TypeError and ValueError for wrong arguments.

Those that are a broker's answer, or the lack of one, are BrokerErrors, whose `code` is Kafka's.
"""

from typing import TYPE_CHECKING

from smq.model.errors import BrokerError, ErrorCode, NotFound, StoreError

if TYPE_CHECKING:
    from smq.client.producing.futures import BatchFuture


class NoSuchTopic(BrokerError):
    """The cluster has no topic of this name; or it is deleted while records are on their way."""

    def __init__(self, name: str) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {name}; create it with `smq topic create {name}`",
        )


class BrokerUnavailable(BrokerError):
    """No broker answers, or none did in time.

    Of a record it means that its fate is not known: the broker may have it, for it may have gone
    away between taking and acknowledging it. It is in the topic once or not at all.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class RecordTooLarge(BrokerError):
    """A record, alone in its batch, is above the topic's max.message.bytes; it is not sent."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferFull(Exception):
    """The producer holds all the records that it may, and the time to wait has passed.

    The record is not taken; the same call may succeed once the broker has acknowledged others. Of
    a large `send_batch` a part may have been sent: `sent` is its future.
    """

    sent: "BatchFuture | None" = None


class ChannelGone(Exception):
    """The broker or shard at the other end has ended, or has dropped us.

    Requests without an answer may have been taken. Programs never see this: producers send again.
    """


class Closed(Exception):
    """The client, producer or consumer has been closed, or its process has forked since."""


class BatchReleased(Exception):
    """A batch that was lent for a `with` block is used after its end."""

    def __init__(self) -> None:
        super().__init__("the batch was lent for its `with` block, which has ended: batch.copy()")


class Overrun(Exception):
    """The ring has overtaken records that were lent: what was read of them is not to be used."""


class PayloadMissing(NotFound):
    """A record's payload is not in the filer: retention has ended it, or somebody deleted it."""

    def __init__(self, key: str) -> None:
        super().__init__(key, "the payload is gone")


class PayloadDamaged(StoreError):
    """A payload's bytes are not what was uploaded."""


class ReferenceRejected(BrokerError):
    """A handle was refused and not written: its payload is not there, or not the topic's."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
