"""DescribeCluster tells the nodes of Metadata, and that none of them is fenced."""

from pathlib import Path

import pytest

from gateway.apis.metadata import NO_OPERATIONS_ASKED
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_cluster import DescribeClusterRequest
from smq.wire.generated.metadata import MetadataRequest
from tests.gateway.shard_api_bench import ShardBench


@pytest.mark.parametrize("version", range(3))
def test_the_nodes_are_those_of_metadata(tmp_path: Path, version: int) -> None:
    bench = ShardBench(tmp_path)
    described = bench.ask("DescribeCluster", version, DescribeClusterRequest())
    metadata = bench.ask("Metadata", 12, MetadataRequest(topics=None))
    assert described.error_code == ErrorCode.NONE
    assert [(each.broker_id, each.host, each.port, each.rack) for each in described.brokers] == [
        (each.node_id, each.host, each.port, each.rack) for each in metadata.brokers
    ]
    assert (described.cluster_id, described.controller_id) == ("a-cluster", metadata.controller_id)


def test_no_node_is_fenced(tmp_path: Path) -> None:
    request = DescribeClusterRequest(include_fenced_brokers=True)
    described = ShardBench(tmp_path).ask("DescribeCluster", 2, request)
    assert [each.is_fenced for each in described.brokers] == [False, False]


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_only_brokers_can_be_asked_for(
    tmp_path: Path, endpoint_type: int, error: ErrorCode
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    described = ShardBench(tmp_path).ask("DescribeCluster", 1, request)
    assert (described.error_code, described.brokers) == (error, [])
    assert "ask for brokers" in described.error_message


@pytest.mark.parametrize(("is_asked", "operations"), [(True, 8096), (False, NO_OPERATIONS_ASKED)])
def test_authorized_operations_are_returned_on_request(
    tmp_path: Path, is_asked: bool, operations: int
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
    described = ShardBench(tmp_path).ask("DescribeCluster", 0, request)
    assert described.cluster_authorized_operations == operations
