"""ListPartitionReassignments: there are none."""

from pathlib import Path

from smq.model.errors import ErrorCode
from smq.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic


def test_nothing_is_ever_reassigned(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("t"))
    one = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
    for topics in (None, [one]):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = bench.ask("ListPartitionReassignments", 0, request)
        assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])
