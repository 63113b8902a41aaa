"""AlterPartitionReassignments: a partition stays where it is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("t", range(1, 3)))


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    ("name", "index", "replicas", "error"),
    [
        ("t", 1, [1], E.NONE),
        ("t", 0, None, E.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [], E.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [1, 1], E.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [2], E.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [1], E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, [1], E.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, [1], E.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_only_where_it_is(  # noqa: PLR0913, PLR0917  (a case of the table)
    bench: ShardBench,
    version: int,
    name: str,
    index: int,
    replicas: Sequence[int] | None,
    error: ErrorCode,
) -> None:
    asked = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[asked])]
    )
    answer = bench.ask("AlterPartitionReassignments", version, request)
    [row] = answer.responses[0].partitions
    assert (answer.error_code, row.partition_index, row.error_code) == (E.NONE, index, error)
    if error is E.INVALID_REPLICA_ASSIGNMENT:
        assert "stays on broker 1" in row.error_message
