"""The errors of failed records say what to do, or what is unknown."""

import pytest

from smq.client.errors import AuthenticationFailed, ReferenceRejected
from smq.client.producing.batching import failures
from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue
from smq.client.producing.channel.produce_request import ProduceAnswer
from smq.model.errors import ErrorCode
from tests.client.parcels import closed

QUEUE = PartitionQueue("t", 0, "test", transactional_id="x")


def answer(code: int, message: str | None = None) -> ProduceAnswer:
    return ProduceAnswer(1, code, -1, -1, message)


@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_a_late_batch_says_whether_the_broker_may_have_it(*, is_in_doubt: bool) -> None:
    batch = ParcelBatch(closed([(b"a", 0)]), 0, 1)
    batch.is_in_doubt = is_in_doubt
    text = str(failures.expired(PartitionQueue("t", 3, "test"), batch))
    assert "t-3 " in text
    assert ("it may have the record" in text) == is_in_doubt


def test_a_batch_that_no_broker_took_names_the_last_failure() -> None:
    batch, queue = ParcelBatch(closed([(b"a", 0)]), 0, 1), PartitionQueue("t", 3, "test")
    assert str(failures.expired(queue, batch)).endswith("t-3 took nothing in time")
    queue.last_failure = "no broker answers at a:1"
    assert str(failures.expired(queue, batch)).endswith("in time: no broker answers at a:1")


@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_a_batch_that_a_login_failed_for_says_whether_the_broker_may_have_it(
    *, is_in_doubt: bool
) -> None:
    batch = ParcelBatch(closed([(b"a", 0)]), 0, 1)
    batch.is_in_doubt = is_in_doubt
    error = failures.unauthenticated(
        PartitionQueue("t", 3, "test"), batch, AuthenticationFailed("no login at a:1")
    )
    assert isinstance(error, AuthenticationFailed)
    assert (error.message or "").startswith("no login at a:1")
    assert ("; t-3 may have the record" in str(error)) == is_in_doubt


def test_a_record_too_large_says_what_to_do() -> None:
    queue = PartitionQueue("t", 0, "test")
    queue.learn(1, 300)
    error = failures.too_large_for_topic(queue, 400)
    assert "400 bytes" in str(error)
    assert "300: raise its max.message.bytes, or send it by reference" in str(error)
    assert "send it by reference" in str(failures.too_large_for_channels(2**31))


def test_a_refusal_has_the_brokers_code_and_words() -> None:
    error = failures.refused(QUEUE, answer(ErrorCode.INVALID_REQUIRED_ACKS, "no"))
    assert error.code is ErrorCode.INVALID_REQUIRED_ACKS
    assert "no" in str(error)
    assert "message.timestamp.before.max.ms" in str(
        failures.refused(QUEUE, answer(ErrorCode.INVALID_TIMESTAMP))
    )


@pytest.mark.parametrize("message", [None, "Topic authorization failed."])
def test_a_right_that_is_missing_is_named_with_the_topic(message: str | None) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    error = failures.refused(QUEUE, answer(code, message))
    assert (error.message or "").startswith("this user may not write to topic t; `smq acl why`")
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "may not use the transactional id x;" in str(failures.refused(QUEUE, answer(code)))


def test_a_refused_handle_raises_reference_rejected() -> None:
    told = failures.refused(QUEUE, answer(ErrorCode.INVALID_RECORD, "there is no such payload"))
    assert isinstance(told, ReferenceRejected)
    assert not isinstance(
        failures.refused(QUEUE, answer(ErrorCode.INVALID_RECORD)), ReferenceRejected
    )


def test_an_unknown_error_code_is_kept_in_the_message() -> None:
    error = failures.refused(QUEUE, answer(12345))
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "12345" in str(error)


def test_used_up_epochs_ask_for_another_producer() -> None:
    assert failures.out_of_epochs().code is ErrorCode.INVALID_PRODUCER_EPOCH
