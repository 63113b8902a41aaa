"""The SDK's exceptions. Wrong arguments raise TypeError and ValueError instead.

A broker's error, or the lack of an answer, is a BrokerError with Kafka's `code`.
"""

from typing import NamedTuple

from smq.model.errors import BrokerError, ErrorCode, NotFound, StoreError

_NO_RIGHT = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not do that with the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not do that with the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user may not do that on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user may not use the transactional id",
}

_OF_LISTENERS = (
    "its listener may want TLS, a login or a certificate (security.protocol, ssl.keystore.location)"
)


class Act(NamedTuple):
    """What a broker was asked for: `verb` reads on with "topic NAME", or "group NAME"."""

    verb: str = "do that with"
    topic: str = ""
    group: str = ""
    transactional_id: str = ""

    def refused(self, code: ErrorCode) -> str:
        """Which right is missing; "" if it is none to any of these."""
        match code:
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED if self.topic:
                return f"this user may not {self.verb} topic {self.topic}"
            case ErrorCode.GROUP_AUTHORIZATION_FAILED if self.group:
                return f"this user may not {self.verb} group {self.group}"
            case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if self.transactional_id:
                return f"this user may not use the transactional id {self.transactional_id}"
        return ""


def explained(code: ErrorCode, message: str | None, act: Act | None = None) -> str | None:
    """A broker's message about a failure; of a right that is missing, which and what to do.

    Brokers do not name what the right is to: 'Topic authorization failed.'
    """
    if code not in _NO_RIGHT:
        return message
    named = act.refused(code) if act is not None else ""
    why = named or (message.rstrip(".") if message else _NO_RIGHT[code])
    return f"{why}; `smq acl why` tells what its rules allow, `smq acl add` adds one"


class NoSuchTopic(BrokerError):
    """There is no topic of this name, or it was deleted while records were in flight."""

    def __init__(self, name: str) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {name}; create it with `smq topic create {name}`",
        )


class TopicReplaced(NoSuchTopic):
    """The topic that was to be read was deleted, and another one has its name."""

    def __init__(self, name: str) -> None:
        BrokerError.__init__(
            self, ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name} was deleted and created again"
        )


class BrokerUnavailable(BrokerError):
    """No broker answers, or none answered in time.

    A record that fails with this may be in the topic, once, or not: the broker may have gone away
    before or after it appended the record.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class ClosedUnanswered(BrokerUnavailable):
    """A broker has closed a connection before it has answered anything that asks for a right.

    wants_login   it had said which versions it knows, and we have no login: one that ends says less
    """

    def __init__(
        self, message: str, *, advice: str = _OF_LISTENERS, wants_login: bool = False
    ) -> None:
        self.wants_login = wants_login
        super().__init__(f"{message}; {advice}")


class AuthenticationFailed(BrokerError):
    """The broker does not accept who we are, or cannot prove who it is.

    Nothing waits for it for more than a second: a producer's records fail with this. What is sent
    later asks it again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class RecordTooLarge(BrokerError):
    """A record is larger than the topic's max.message.bytes allows. It is not sent."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class UnreadableBatch(BrokerError):
    """A record batch is damaged or malformed. Nothing of it has been read.

    It has the offsets from `start` to `end` (exclusive) of `topic` and `partition`. To go on behind
    it seek to `end`.
    """

    def __init__(
        self,
        name: tuple[str, int],
        offsets: tuple[int, int],
        fault: str = "cannot be read",
        code: ErrorCode = ErrorCode.CORRUPT_MESSAGE,
        advice: str = "",
    ) -> None:
        self.topic, self.partition = name
        self.start, self.end = offsets
        self.fact = (
            f"{self.topic}-{self.partition} has a batch at offsets {self.start} to {self.end - 1} "
            f"that {fault}"
        )
        super().__init__(code, f"{self.fact}; {advice}seek to {self.end} to go on behind it")


class BatchTooLarge(UnreadableBatch):
    """A record batch, or the columns of its records or headers, inflates beyond what this reader
    allows."""

    def __init__(self, name: tuple[str, int], offsets: tuple[int, int], bytes_max: int) -> None:
        super().__init__(
            name,
            offsets,
            f"inflates to more than {bytes_max} bytes, or its columns do",
            ErrorCode.MESSAGE_TOO_LARGE,
            "raise inflated_bytes_max, or ",
        )


class ProducerFenced(BrokerError):
    """Another producer has the transactional id, or a transaction was open for too long.

    The producer cannot continue. Its last transaction is not committed.
    """

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"another producer has begun with the transactional id {transactional_id}, or a "
            "transaction was open for longer than its timeout: close this producer",
        )


class TransactionAborted(BrokerError):
    """A transaction was aborted; its cause, if it has one, says why. The next may begin."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.TRANSACTION_ABORTABLE, message)


class ChannelGone(Exception):
    """The broker or shard at the other end has ended, or has dropped us.

    Requests without an answer may have been taken. Programs never see this: producers send again.
    """


class Closed(Exception):
    """The client, producer or consumer is closed, or belongs to this process's parent."""


class BatchReleased(Exception):
    """A batch was used after the `with` block that it was lent for."""

    def __init__(self) -> None:
        super().__init__("the batch was lent for its `with` block, which has ended: batch.copy()")


class Overrun(Exception):
    """The ring has overwritten records that were lent. Discard what was read of them."""


class PayloadMissing(NotFound):
    """A record's payload is not in the filer: retention or a user has deleted it."""

    def __init__(self, key: str) -> None:
        super().__init__(key, "the payload is gone")


class PayloadDamaged(StoreError):
    """A payload's bytes differ from what was uploaded."""


class ReferenceRejected(BrokerError):
    """The broker refused a handle: its payload does not exist, or belongs to another topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
