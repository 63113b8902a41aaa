"""DescribeUserScramCredentials: there are no users."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        (None, {}),
        ([], {}),
        (["a"], {"a": E.RESOURCE_NOT_FOUND}),
        (["a", "b", "a"], {"a": E.DUPLICATE_RESOURCE, "b": E.RESOURCE_NOT_FOUND}),
    ],
)
def test_there_are_no_users(
    tmp_path: Path, names: list[str] | None, codes: dict[str, ErrorCode]
) -> None:
    """Data fault 34."""
    users = None if names is None else [UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users)
    answer = ShardBench(tmp_path, topic("t")).ask("DescribeUserScramCredentials", 0, request)
    assert (answer.error_code, answer.error_message) == (E.NONE, "")
    assert {each.user: each.error_code for each in answer.results} == codes
    assert all(each.error_message for each in answer.results)
