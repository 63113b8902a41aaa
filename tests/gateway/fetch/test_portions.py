"""Fetches of many partitions: as others, in steps; small while they wait."""

from pathlib import Path
from typing import Any

import pytest

from gateway.context import Wait
from gateway.dispatch import dispatch
from gateway.parts import Parts
from shm.kernels.request.fetch import WAIT_MS_MAX
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.gateway.coordinator_bench import decoded, relayed
from tests.gateway.shard_api_bench import ShardBench, joined
from tests.shard.shard_bench import NOW, batch, topic

PARTITIONS, VERSION = 900, 12


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("wide", range(1, PARTITIONS + 1)))


def request(count: int = PARTITIONS, **fields: Any) -> FetchRequest:
    partitions = [FetchPartition(partition=i, partition_max_bytes=1000) for i in range(count)]
    values: dict[str, Any] = {"max_wait_ms": 1000, "min_bytes": 1}
    return FetchRequest(
        topics=[FetchTopic(topic="wide", partitions=partitions)], **(values | fields)
    )


def begin(bench: ShardBench, asked: FetchRequest) -> Parts:
    result = dispatch(relayed("Fetch", VERSION, asked).request, bench.shard, NOW).result
    assert isinstance(result, Parts)
    return result


def run(parts: Parts) -> Wait | None:
    """Until it waits, or None: it is complete."""
    while not parts.step():
        if parts.pending is not None:
            assert isinstance(parts.pending, Wait)
            return parts.pending
    return None


def answer(parts: Parts) -> list[Any]:
    found = decoded("Fetch", VERSION, joined(parts.written().framed())[4:])
    [only] = found.responses
    return list(only.partitions)


def test_a_large_fetch_with_records_is_answered_with_every_partition(bench: ShardBench) -> None:
    for index in (0, 450, PARTITIONS - 1):
        bench.appender.append("wide", index, batch(b"%d" % index))
    parts = begin(bench, request())
    assert run(parts) is None
    rows = answer(parts)
    assert [row.partition_index for row in rows] == list(range(PARTITIONS))
    assert [row.partition_index for row in rows if row.records] == [0, 450, PARTITIONS - 1]


def test_one_budget_holds_for_all_portions(bench: ShardBench) -> None:
    for index in range(0, PARTITIONS, 100):
        bench.appender.append("wide", index, batch(bytes(500)))
    parts = begin(bench, request(max_bytes=1300))
    assert run(parts) is None
    assert [row.partition_index for row in answer(parts) if row.records] == [0, 100]


def test_it_waits_until_one_of_them_moves(bench: ShardBench) -> None:
    parts = begin(bench, request())
    wait = run(parts)
    assert wait is not None
    assert (len(wait.find_codes()), wait.timeout_ms, wait.has_moved) == (PARTITIONS, 1000, False)
    bench.appender.append("wide", 700, batch(b"come"))
    parts.add(wait.look([700]))
    assert run(parts) is None
    assert [row.partition_index for row in answer(parts) if row.records] == [700]


def test_when_the_time_is_over_it_answers_with_nothing(bench: ShardBench) -> None:
    parts = begin(bench, request(max_wait_ms=2**31 - 1))
    wait = run(parts)
    assert wait is not None
    assert wait.timeout_ms == WAIT_MS_MAX
    parts.add(wait.attempt(is_last=True))
    assert run(parts) is None
    assert not any(row.records for row in answer(parts))


def test_a_record_appended_behind_a_large_fetch_is_not_missed(bench: ShardBench) -> None:
    parts = begin(bench, request())
    for _ in range(4):  # The first portions are read, and found empty.
        assert not parts.step()
    bench.appender.append("wide", 0, batch(b"behind"))
    wait = run(parts)
    assert wait is not None
    assert wait.has_moved


def test_a_large_fetch_without_max_wait_is_answered_at_once(bench: ShardBench) -> None:
    parts = begin(bench, request(max_wait_ms=0))
    assert run(parts) is None
    assert len(answer(parts)) == PARTITIONS


def test_an_error_is_answered_at_once(bench: ShardBench) -> None:
    parts = begin(bench, request(count=PARTITIONS + 1))
    assert run(parts) is None
    assert [row.error_code for row in answer(parts) if row.error_code] == [3]


def test_the_step_of_a_session_is_refused(bench: ShardBench) -> None:
    parts = begin(bench, request(session_id=7, session_epoch=3))
    assert run(parts) is None
    found = decoded("Fetch", VERSION, joined(parts.written().framed())[4:])
    assert (found.error_code, list(found.responses)) == (70, [])
