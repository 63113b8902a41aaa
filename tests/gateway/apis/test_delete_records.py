"""DeleteRecords: the log start moves up, never back, and is there after a restart."""

import json
from pathlib import Path

import pytest

from smq.log.files.checkpoint import Open
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.gateway.apis.rights import limit_caller
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import batch, topic

E = ErrorCode
RECORDS = 6


def delete(
    bench: ShardBench, offset: int, index: int = 0, name: str = "t", version: int = 2
) -> tuple[int, int]:
    """Error and low watermark."""
    asked = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[asked])])
    answer = bench.ask("DeleteRecords", version, request)
    [result] = answer.topics[0].partitions
    assert (answer.topics[0].name, result.partition_index) == (name, index)
    bench.shard.invariants()
    return result.error_code, result.low_watermark


def log_start(bench: ShardBench) -> int:
    [led] = [each for each in bench.shard.led() if each.number == 1]
    return led.offsets().log_start


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    """Two batches of three records in the first of two partitions."""
    bench = ShardBench(tmp_path, topic("t", range(1, 3)))
    for _ in range(2):
        bench.appender.append("t", 0, batch(b"a", b"b", b"c"))
    return bench


@pytest.mark.parametrize("version", range(3))
def test_the_log_start_moves_up_also_into_a_batch(bench: ShardBench, version: int) -> None:
    assert delete(bench, 1, version=version) == (E.NONE, 1)
    assert delete(bench, 4, version=version) == (E.NONE, 4)
    assert log_start(bench) == 4


def test_it_never_moves_back(bench: ShardBench) -> None:
    assert delete(bench, 4) == (E.NONE, 4)
    assert delete(bench, 2) == (E.NONE, 4)
    assert log_start(bench) == 4


@pytest.mark.parametrize(("offset", "stable"), [(2, 2), (4, 4), (6, 6)])
def test_the_last_stable_offset_moves_up_with_it(
    bench: ShardBench, offset: int, stable: int
) -> None:
    """Data fault 29: it stayed at the open transaction, where every fetch is out of range."""
    led = bench.shard.by_number(1)
    assert led is not None
    led.log.transactions.wrote(Open(1, 77, 0, 1, since_ms=0))
    assert led.offsets().last_stable == 1
    assert delete(bench, offset) == (E.NONE, offset)
    assert led.offsets().last_stable == stable
    bench.appender.append("t", 0, batch(b"later"))
    assert led.offsets().last_stable == stable, "what is open stays so"


def test_minus_one_is_the_high_watermark(bench: ShardBench) -> None:
    assert delete(bench, -1) == (E.NONE, RECORDS)
    assert delete(bench, -1, index=1) == (E.NONE, 0)


def test_the_answer_is_durable(bench: ShardBench, tmp_path: Path) -> None:
    assert delete(bench, 4) == (E.NONE, 4)
    again = ShardBench(tmp_path, topic("t", range(1, 3)))
    assert log_start(again) == 4


@pytest.mark.parametrize("offset", [RECORDS + 1, -2])
def test_an_offset_out_of_range_deletes_nothing(bench: ShardBench, offset: int) -> None:
    assert delete(bench, offset) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert log_start(bench) == 0


def test_a_missing_partition_is_unknown(bench: ShardBench) -> None:
    for index in (2, -1):
        assert delete(bench, 0, index=index) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(bench, 0, name="none") == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_partition_of_another_node_is_refused(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("t", range(1, 2), logs=(1,)))
    assert delete(bench, 0) == (E.NOT_LEADER_OR_FOLLOWER, -1)


def test_no_partitions_are_answered_by_none(bench: ShardBench) -> None:
    assert bench.ask("DeleteRecords", 2, DeleteRecordsRequest(topics=[])).topics == []


def test_each_partition_is_written_to_the_audit_log(bench: ShardBench) -> None:
    limit_caller(bench, "alice", "DELETE TOPIC t")
    delete(bench, 4)
    delete(bench, 99)
    delete(bench, 1, name="unknown")
    audit = bench.caller.rights.audit
    [done] = map(json.loads, audit.take_acts())
    assert (done["principal"], done["resource"]) == ("User:alice", "t")
    assert done["detail"] == "partition 0, below 4"
    told = map(json.loads, audit.take_accesses(Now(0, 0)))
    [failed] = [each for each in told if each["event"] == "failed act"]
    assert failed["error"] == "OFFSET_OUT_OF_RANGE"


def test_a_partition_that_is_named_often_is_written_once(bench: ShardBench) -> None:
    limit_caller(bench, "alice", "DELETE TOPIC t")
    partitions = [DeleteRecordsPartition(partition_index=0, offset=4)] * 50
    topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
    bench.ask("DeleteRecords", 2, DeleteRecordsRequest(topics=topics))
    assert len(bench.caller.rights.audit.take_acts()) == 1
