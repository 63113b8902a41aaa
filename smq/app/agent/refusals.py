"""Why a call is refused: a status of gRPC for unary calls, SeaweedMQ's number within streams."""

from collections.abc import Awaitable
from enum import IntEnum
from typing import TypeVar

import grpc

from smq.agent.layouts import UnknownRange
from smq.model.errors import BrokerError, ErrorCode
from smq.model.offset_types import OutOfRange
from smq.security.audit import DENIALS

_Status = grpc.StatusCode
Result = TypeVar("Result")


class Code(IntEnum):
    """SeaweedMQ's numbers of errors in messages."""

    NONE = 0
    UNKNOWN = 1
    TOPIC_NOT_FOUND = 2
    PARTITION_NOT_FOUND = 3
    TIMED_OUT = 7
    BROKER_UNAVAILABLE = 8
    TOO_LARGE = 10
    TOPIC_EXISTS = 36
    CONFIG = 40
    INVALID_RECORD = 42
    PUBLISHER_NOT_FOUND = 100


class CallRefused(Exception):
    """A call, or a record of a stream, is refused with a sentence."""

    def __init__(self, status: grpc.StatusCode, sentence: str, code: Code = Code.UNKNOWN) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.code = status, sentence, code


class NotAllowed(Exception):
    """The caller may not do that: PERMISSION_DENIED for the call, also where it is a stream."""


def no_topic(name: object) -> CallRefused:
    """There is no such topic, or none that the caller may know of."""
    return CallRefused(_Status.NOT_FOUND, f"there is no topic {name}", Code.TOPIC_NOT_FOUND)


_OF_BROKER = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (_Status.NOT_FOUND, Code.TOPIC_NOT_FOUND),
    ErrorCode.UNKNOWN_TOPIC_ID: (_Status.NOT_FOUND, Code.TOPIC_NOT_FOUND),
    ErrorCode.TOPIC_ALREADY_EXISTS: (_Status.ALREADY_EXISTS, Code.TOPIC_EXISTS),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (_Status.INVALID_ARGUMENT, Code.CONFIG),
    ErrorCode.INVALID_PARTITIONS: (_Status.INVALID_ARGUMENT, Code.CONFIG),
    ErrorCode.INVALID_CONFIG: (_Status.INVALID_ARGUMENT, Code.CONFIG),
    ErrorCode.POLICY_VIOLATION: (_Status.RESOURCE_EXHAUSTED, Code.CONFIG),
    ErrorCode.MESSAGE_TOO_LARGE: (_Status.INVALID_ARGUMENT, Code.TOO_LARGE),
    ErrorCode.CORRUPT_MESSAGE: (_Status.DATA_LOSS, Code.INVALID_RECORD),
    ErrorCode.INVALID_RECORD: (_Status.INVALID_ARGUMENT, Code.INVALID_RECORD),
    ErrorCode.INVALID_TIMESTAMP: (_Status.INVALID_ARGUMENT, Code.INVALID_RECORD),
    **dict.fromkeys(DENIALS, (_Status.PERMISSION_DENIED, Code.UNKNOWN)),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (_Status.RESOURCE_EXHAUSTED, Code.CONFIG),
    ErrorCode.INVALID_GROUP_ID: (_Status.INVALID_ARGUMENT, Code.UNKNOWN),
    ErrorCode.UNKNOWN_MEMBER_ID: (_Status.FAILED_PRECONDITION, Code.UNKNOWN),
    ErrorCode.REQUEST_TIMED_OUT: (_Status.UNAVAILABLE, Code.TIMED_OUT),
    ErrorCode.BROKER_NOT_AVAILABLE: (_Status.UNAVAILABLE, Code.BROKER_UNAVAILABLE),
    ErrorCode.LEADER_NOT_AVAILABLE: (_Status.UNAVAILABLE, Code.BROKER_UNAVAILABLE),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (_Status.UNAVAILABLE, Code.BROKER_UNAVAILABLE),
}


ENDS = frozenset({_Status.FAILED_PRECONDITION, _Status.PERMISSION_DENIED, _Status.UNAUTHENTICATED})
"""By these a stream ends, whose client can only go elsewhere or log in again."""
REFUSALS = (CallRefused, BrokerError, UnknownRange, OutOfRange, ValueError)
"""What callers cause, and what brokers do; anything else is a bug of ours."""


def refused_by(error: Exception) -> CallRefused:
    """What an error tells the caller."""
    found = _Status.UNKNOWN, Code.UNKNOWN
    match error:
        case CallRefused():
            return error
        case BrokerError():
            found = _OF_BROKER.get(error.code, found)
        case UnknownRange():
            found = _Status.NOT_FOUND, Code.PARTITION_NOT_FOUND
        case OutOfRange():
            found = _Status.OUT_OF_RANGE, Code.UNKNOWN
        case ValueError():
            found = _Status.INVALID_ARGUMENT, Code.CONFIG
    return CallRefused(found[0], str(error), found[1])


async def attempted(work: Awaitable[Result]) -> Result | CallRefused:
    """What some work gives, or why it is refused."""
    try:
        return await work
    except REFUSALS as error:
        return refused_by(error)
