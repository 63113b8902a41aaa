"""Shared by the transaction APIs: error codes that older clients understand."""

from smq.model.errors import ErrorCode


def said(error: ErrorCode, *, knows_fencing: bool) -> ErrorCode:
    """The code as this version knows it: PRODUCER_FENCED is unknown to older ones (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fencing:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
