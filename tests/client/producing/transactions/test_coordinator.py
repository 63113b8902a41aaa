"""The coordinator of a transactional id is asked, and asked again where that helps."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import smq
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import END_TXN
from smq.client.names import GroupOffsets, TopicPartition
from smq.client.producing.transactions.coordinator import TransactionCoordinator
from smq.client.reach import Reach
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.end_txn import EndTxnResponse

TIMEOUT_MS = 60_000
NAME = TopicPartition("t", 0)


@pytest.fixture
def reach(smq_broker: SmqBroker) -> Reach:
    with smq_broker.connect() as client:
        client.create_topic("t", 1)
    return Reach(smq_broker.bootstrap, deadline_seconds=5)


@pytest.fixture
def coordinator(reach: Reach) -> Iterator[TransactionCoordinator]:
    made = TransactionCoordinator(reach, "x", TIMEOUT_MS)
    yield made
    made.close()


def test_the_epoch_rises_with_each_end(coordinator: TransactionCoordinator) -> None:
    producer = coordinator.begin()
    for committed in (True, False, True):
        coordinator.add_partitions([NAME])
        coordinator.commit_offsets(GroupOffsets("g", {NAME: 0}))
        after = coordinator.end(committed=committed)
        assert after == producer._replace(epoch=producer.epoch + 1)
        producer = after


def test_a_later_producer_fences_and_the_same_one_does_not(
    coordinator: TransactionCoordinator, reach: Reach
) -> None:
    first = coordinator.begin()
    assert coordinator.begin().epoch > first.epoch
    coordinator.add_partitions([NAME])
    other = TransactionCoordinator(reach, "x", TIMEOUT_MS)
    other.begin()
    other.add_partitions([NAME])
    calls: list[Callable[[], object]] = [
        lambda: coordinator.add_partitions([NAME]),
        lambda: coordinator.commit_offsets(GroupOffsets("g", {NAME: 0})),
        lambda: coordinator.end(committed=True),
    ]
    for call in calls:
        with pytest.raises(smq.ProducerFenced, match="transactional id x"):
            call()
    assert other.end(committed=True) is not None
    with pytest.raises(smq.ProducerFenced):
        coordinator.begin()
    other.close()


def test_an_error_of_the_coordinator_is_raised(
    coordinator: TransactionCoordinator, reach: Reach
) -> None:
    greedy = TransactionCoordinator(reach, "y", 2**31 - 1)
    with pytest.raises(BrokerError) as raised:
        greedy.begin()
    assert raised.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    greedy.close()
    coordinator.begin()
    with pytest.raises(BrokerError) as raised:
        coordinator.commit_offsets(GroupOffsets("g", {NAME: 0}, 3, "nobody"))
    assert raised.value.code == ErrorCode.ILLEGAL_GENERATION


def test_a_broker_that_restarts_is_asked_again(smq_broker: SmqBroker, reach: Reach) -> None:
    coordinator = TransactionCoordinator(reach, "x", TIMEOUT_MS)
    producer = coordinator.begin()
    coordinator.add_partitions([NAME])
    smq_broker.restart()
    assert coordinator.end(committed=True) == producer._replace(epoch=producer.epoch + 1)
    coordinator.close()


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Has brokers take our login no more, from before the end is asked for or right after that."""
    connection, ask = TransactionCoordinator._connection, KafkaConnection.ask

    def begin(is_asked: bool) -> None:
        asked = [] if is_asked else [True]

        def connect(*args: Any) -> KafkaConnection:
            if asked:
                raise smq.AuthenticationFailed("no login at b: invalid credentials")
            return connection(*args)

        def lose(given: KafkaConnection, question: Any, request: Any) -> Any:
            answer = ask(given, question, request)
            if question is END_TXN:
                asked.append(True)
                raise smq.BrokerUnavailable("it has closed the connection")
            return answer

        monkeypatch.setattr(TransactionCoordinator, "_connection", connect)
        monkeypatch.setattr(KafkaConnection, "ask", lose)

    return begin


def test_an_end_without_a_request_is_refused_and_may_become_an_abort(
    coordinator: TransactionCoordinator,
    refuse: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator.begin()
    coordinator.add_partitions([NAME])
    refuse(False)
    with pytest.raises(smq.AuthenticationFailed):
        coordinator.end(committed=True)
    monkeypatch.undo()
    assert coordinator.end(committed=False) is not None


def test_an_end_without_an_answer_is_unknown_while_the_login_is_refused(
    coordinator: TransactionCoordinator,
    refuse: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = coordinator.begin()
    coordinator.add_partitions([NAME])
    refuse(True)
    for _ in range(2):
        with pytest.raises(smq.BrokerUnavailable, match="unknown whether") as raised:
            coordinator.end(committed=True)
        assert isinstance(raised.value.__cause__, smq.AuthenticationFailed)
    monkeypatch.undo()
    assert coordinator.end(committed=True) == producer._replace(epoch=producer.epoch + 1)
    refuse(False)
    with pytest.raises(smq.AuthenticationFailed):
        coordinator.end(committed=True)


def test_an_end_that_was_answered_is_not_unknown_when_the_next_login_is_refused(
    coordinator: TransactionCoordinator,
    refuse: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coordinator.begin()
    coordinator.add_partitions([NAME])
    ask = KafkaConnection.ask

    def answer(given: KafkaConnection, question: Any, request: Any) -> Any:
        if question is not END_TXN:
            return ask(given, question, request)
        return EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE)

    def commit_in_vain() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(KafkaConnection, "ask", answer)
            with pytest.raises(BrokerError) as raised:
                coordinator.end(committed=True)
        assert raised.value.code == ErrorCode.TRANSACTION_ABORTABLE

    commit_in_vain()
    refuse(False)
    with pytest.raises(smq.AuthenticationFailed):
        coordinator.end(committed=False)
    monkeypatch.undo()
    refuse(True)
    with pytest.raises(smq.BrokerUnavailable, match="unknown whether"):
        coordinator.end(committed=True)
    monkeypatch.undo()
    commit_in_vain()  # The answer before was lost: this one does not say what that one did.
    refuse(False)
    with pytest.raises(smq.BrokerUnavailable, match="unknown whether"):
        coordinator.end(committed=False)
