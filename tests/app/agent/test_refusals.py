"""What callers are told of errors."""

import asyncio

import grpc
import pytest

from smq.agent.layouts import UnknownRange
from smq.app.agent.refusals import CallRefused, Code, attempted, no_topic, refused_by
from smq.client.errors import NoSuchTopic, RecordTooLarge
from smq.model.errors import BrokerError, ErrorCode
from smq.model.offset_types import OutOfRange

Status = grpc.StatusCode


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NoSuchTopic("t"), Status.NOT_FOUND, Code.TOPIC_NOT_FOUND),
        (RecordTooLarge("large"), Status.INVALID_ARGUMENT, Code.TOO_LARGE),
        (BrokerError(ErrorCode.INVALID_REQUEST, "no"), Status.UNKNOWN, Code.UNKNOWN),
        (
            BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"),
            Status.PERMISSION_DENIED,
            Code.UNKNOWN,
        ),
        (
            BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "slow"),
            Status.RESOURCE_EXHAUSTED,
            Code.CONFIG,
        ),
        (UnknownRange("none"), Status.NOT_FOUND, Code.PARTITION_NOT_FOUND),
        (OutOfRange("far"), Status.OUT_OF_RANGE, Code.UNKNOWN),
        (ValueError("bad"), Status.INVALID_ARGUMENT, Code.CONFIG),
        (RuntimeError("odd"), Status.UNKNOWN, Code.UNKNOWN),
        (no_topic("a/b"), Status.NOT_FOUND, Code.TOPIC_NOT_FOUND),
    ],
    ids=[
        "no topic",
        "large",
        "broker",
        "denied",
        "quota",
        "range",
        "offset",
        "value",
        "other",
        "refused",
    ],
)
def test_an_error_has_its_status_code_and_sentence(
    error: Exception, status: grpc.StatusCode, code: Code
) -> None:
    refused = refused_by(error)
    assert (refused.status, refused.code) == (status, code)
    assert refused.sentence == str(error)


def test_a_bug_of_ours_is_no_refusal() -> None:
    async def bug() -> None:
        raise TypeError

    async def refusing() -> None:
        raise ValueError("no")

    with pytest.raises(TypeError):
        asyncio.run(attempted(bug()))
    assert isinstance(asyncio.run(attempted(refusing())), CallRefused)
