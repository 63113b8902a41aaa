"""ACLs: there is no authorizer, and every request gets that answer."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

DISABLED = ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize("version", range(1, 4))
def test_security_is_disabled(tmp_path: Path, version: int) -> None:
    bench = ShardBench(tmp_path, topic("t"))
    described = bench.ask("DescribeAcls", version, DescribeAclsRequest())
    assert (described.error_code, described.resources) == (DISABLED, [])
    created = bench.ask("CreateAcls", version, CreateAclsRequest(creations=[AclCreation()] * 2))
    assert [each.error_code for each in created.results] == [DISABLED] * 2
    deleted = bench.ask("DeleteAcls", version, DeleteAclsRequest(filters=[DeleteAclsFilter()] * 2))
    assert [each.error_code for each in deleted.filter_results] == [DISABLED] * 2
