"""Fetch: which batches are given, and when it waits for more."""

from pathlib import Path

import pytest

from gateway.context import Wait
from smq.model.errors import ErrorCode
from tests.gateway.fetch.asking import fetch, new_bench, offsets, row, rows, wanted
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import batch


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return new_bench(tmp_path)


@pytest.mark.parametrize("version", range(4, 19))
def test_whole_batches_are_given_from_the_one_that_holds_the_offset(
    bench: ShardBench, version: int
) -> None:
    data = row(bench.ask("Fetch", version, fetch(wanted(fetch_offset=1))))
    assert data.error_code == ErrorCode.NONE
    assert offsets(data) == [0, 1, 2, 3, 4, 5]
    assert data.high_watermark == data.last_stable_offset == 6


def test_with_too_little_to_say_it_waits_and_answers_when_enough_has_come(
    bench: ShardBench,
) -> None:
    asked = fetch(wanted("u"), max_wait_ms=500, min_bytes=1)
    wait = bench.ask("Fetch", 12, asked)
    assert isinstance(wait, Wait)
    assert wait.timeout_ms == 500
    bench.shard.take_moved()
    codes = list(wait.find_codes())
    assert wait.look(codes) is None
    bench.appender.append("u", 0, batch(b"x"))
    assert [log << 32 | slot for log, slot in bench.shard.take_moved()] == codes
    assert offsets(row(bench.read(wait.look(codes)))) == [0]


def test_a_fetch_with_an_error_or_without_time_or_partitions_does_not_wait(
    bench: ShardBench,
) -> None:
    waiting = {"max_wait_ms": 500, "min_bytes": 1}
    both = bench.ask("Fetch", 12, fetch(wanted("u"), wanted("t", fetch_offset=9), **waiting))
    assert [each.error_code for each in rows(both)] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert offsets(row(bench.ask("Fetch", 12, fetch(wanted("u"), min_bytes=1)))) == []
    assert bench.ask("Fetch", 12, fetch(**waiting)).responses == []


@pytest.mark.parametrize("session_epoch", [0, -1])
def test_full_fetches_have_session_0(bench: ShardBench, session_epoch: int) -> None:
    response = bench.ask("Fetch", 12, fetch(wanted(), session_epoch=session_epoch))
    assert (response.error_code, response.session_id) == (ErrorCode.NONE, 0)


def test_the_next_step_of_a_session_is_70(bench: ShardBench) -> None:
    response = bench.ask("Fetch", 12, fetch(wanted(), session_id=5, session_epoch=1))
    assert (response.error_code, response.responses) == (70, [])
