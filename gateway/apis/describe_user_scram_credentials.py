"""DescribeUserScramCredentials (key 50), version 0 (KIP-554).

There are no users. Tools that describe users ask for all of them, whatever they look for. A named
one is RESOURCE_NOT_FOUND, and DUPLICATE_RESOURCE if it is named twice.
"""

from collections import Counter

from gateway.context import ShardContext
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    request: DescribeUserScramCredentialsRequest, _context: ShardContext
) -> DescribeUserScramCredentialsResponse:
    """Describe nobody."""
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[_missing(name, count) for name, count in counts.items()]
    )


def _missing(name: str, count: int) -> DescribeUserScramCredentialsResult:
    code, sentence = ErrorCode.RESOURCE_NOT_FOUND, "There are no users here."
    if count > 1:
        code, sentence = ErrorCode.DUPLICATE_RESOURCE, "The request names this user twice."
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=sentence)
