"""OffsetForLeaderEpoch: where the largest epoch not above the one asked for ended."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.gateway.shard_api_bench import EPOCH, ShardBench
from tests.shard.shard_bench import batch, topic


def ask(
    bench: ShardBench, epoch: int, current: int = -1, name: str = "t", index: int = 0
) -> tuple[int, int, int]:
    """Error, epoch and end offset of one partition."""
    asked = OffsetForLeaderPartition(
        partition=index, leader_epoch=epoch, current_leader_epoch=current
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=[asked])]
    )
    response = bench.ask("OffsetForLeaderEpoch", 4, request)
    [answer] = response.topics[0].partitions
    assert (response.topics[0].topic, answer.partition) == (name, index)
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    """Two records in epoch 2, one in epoch 5."""
    before = ShardBench(tmp_path, topic("t"), epoch=2)
    before.appender.append("t", 0, batch(b"a", b"b"))
    bench = ShardBench(tmp_path, topic("t"))
    bench.appender.append("t", 0, batch(b"c"))
    return bench


@pytest.mark.parametrize(
    ("epoch", "answered", "end"),
    [(5, 5, 3), (4, 2, 2), (3, 2, 2), (2, 2, 2), (6, -1, -1), (-1, -1, -1)],
)
def test_the_largest_epoch_not_above_the_one_asked_for_and_its_end(
    bench: ShardBench, epoch: int, answered: int, end: int
) -> None:
    assert ask(bench, epoch) == (ErrorCode.NONE, answered, end)


@pytest.mark.parametrize(
    ("current", "error"),
    [
        (EPOCH, ErrorCode.NONE),
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_stale_or_unknown_leader_epoch_is_an_error(
    bench: ShardBench, current: int, error: ErrorCode
) -> None:
    assert ask(bench, EPOCH, current)[0] == error


@pytest.mark.parametrize(("name", "index"), [("none", 0), ("t", 1), ("t", -1)])
def test_a_partition_that_is_not_is_unknown(bench: ShardBench, name: str, index: int) -> None:
    answered = ask(bench, EPOCH, name=name, index=index)
    assert answered == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
