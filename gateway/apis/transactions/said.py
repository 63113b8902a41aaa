"""Shared by the APIs of transactions: the error codes that older clients understand."""

from smq.model.errors import ErrorCode


def said(error: ErrorCode, *, knows_fencing: bool) -> ErrorCode:
    """The code for a version that does or does not know PRODUCER_FENCED (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and not knows_fencing:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
