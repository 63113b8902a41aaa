"""DescribeQuorum: one voter keeps the cluster's metadata."""

from pathlib import Path

import pytest

from gateway.apis.describe_quorum import CLUSTER_METADATA
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NODES, NOW_MS, topic


def ask(bench: ShardBench, version: int, *asked: tuple[str, list[int]]) -> DescribeQuorumResponse:
    topics = [
        DescribeQuorumRequestTopicData(
            topic_name=name,
            partitions=[DescribeQuorumRequestPartitionData(partition_index=i) for i in indexes],
        )
        for name, indexes in asked
    ]
    answer = bench.ask("DescribeQuorum", version, DescribeQuorumRequest(topics=topics))
    assert isinstance(answer, DescribeQuorumResponse)
    return answer


@pytest.mark.parametrize("version", range(3))
def test_the_controller_is_the_only_voter(tmp_path: Path, version: int) -> None:
    answer = ask(ShardBench(tmp_path, topic("t")), version, (CLUSTER_METADATA, [0]))
    [partition] = answer.topics[0].partitions
    [voter] = partition.current_voters
    assert partition.leader_id == voter.replica_id == NODES[0].id
    assert partition.high_watermark == voter.log_end_offset == 1  # The catalog's version.
    assert voter.last_caught_up_timestamp == (NOW_MS if version else -1)
    ports = [listener.port for node in answer.nodes for listener in node.listeners]
    assert ports == ([NODES[0].port] if version == 2 else [])


@pytest.mark.parametrize("asked", [("t", [0]), (CLUSTER_METADATA, [1]), (CLUSTER_METADATA, [0, 1])])
def test_nothing_else_has_a_quorum(tmp_path: Path, asked: tuple[str, list[int]]) -> None:
    answer = ask(ShardBench(tmp_path, topic("t")), 2, asked)
    errors = {each.error_code for each in answer.topics[0].partitions}
    assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not answer.nodes
