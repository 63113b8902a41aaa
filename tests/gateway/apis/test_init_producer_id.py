"""InitProducerId: a new id for each request, even if the client sends one of its own."""

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_an_id_of_its_own(bench: CoordinatorBench, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [bench.ask("InitProducerId", version, request) for _ in range(3)]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(E.NONE, 0)}


def test_an_idempotent_producer_that_brings_an_id_gets_another(bench: CoordinatorBench) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=77, producer_epoch=5)
    answer = bench.ask("InitProducerId", 3, request)
    assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
    assert answer.producer_id != 77


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, E.INVALID_REQUEST),
        ({"transactional_id": "mine"}, E.INVALID_TRANSACTION_TIMEOUT),
        (
            {"transactional_id": "mine", "transaction_timeout_ms": 900_001},
            E.INVALID_TRANSACTION_TIMEOUT,
        ),
        ({"transactional_id": None, "producer_id": 5}, E.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, E.INVALID_REQUEST),
    ],
)
def test_an_invalid_request_is_refused(
    bench: CoordinatorBench, fields: dict[str, int | str | None], error: ErrorCode
) -> None:
    answer = bench.ask("InitProducerId", 4, InitProducerIdRequest(**fields))  # type: ignore[arg-type]
    assert answer == InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


def transactional(bench: CoordinatorBench, version: int, **fields: int) -> tuple[int, int, int]:
    """Error, producer id and epoch."""
    request = InitProducerIdRequest(
        transactional_id="mine", transaction_timeout_ms=60_000, **fields
    )
    answer = bench.ask("InitProducerId", version, request)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id(bench: CoordinatorBench, version: int) -> None:
    error, producer_id, epoch = transactional(bench, version)
    assert (error, epoch) == (E.NONE, 0)
    assert transactional(bench, version) == (E.NONE, producer_id, 1)


@pytest.mark.parametrize(
    ("version", "error"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)]
)
def test_a_producer_that_names_itself(
    bench: CoordinatorBench, version: int, error: ErrorCode
) -> None:
    _, producer_id, _ = transactional(bench, version)
    for _ in range(2):  # The first answer may be lost.
        again = transactional(bench, version, producer_id=producer_id, producer_epoch=0)
        assert again == (E.NONE, producer_id, 1)
    assert transactional(bench, version, producer_id=producer_id, producer_epoch=5)[0] == error
    assert transactional(bench, version, producer_id=producer_id + 9, producer_epoch=1)[0] == error
