"""PRODUCER_FENCED goes only to versions that know it."""

from gateway.apis.transactions.said import said
from smq.model.errors import ErrorCode


def test_older_clients_hear_of_the_epoch() -> None:
    assert said(ErrorCode.PRODUCER_FENCED, knows_fencing=True) is ErrorCode.PRODUCER_FENCED
    assert said(ErrorCode.PRODUCER_FENCED, knows_fencing=False) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert said(ErrorCode.NONE, knows_fencing=False) is ErrorCode.NONE
