"""How much an answer holds, and what of it the sealer has."""

from pathlib import Path
from typing import Any

import pytest

from gateway.context import Ask
from gateway.fetch.answer import COLD_PARTITIONS_MAX
from shm.kernels.base.words import (
    COUNTER_BYTES_OUT,
    COUNTER_FETCHES_FROM_SEALED,
    COUNTER_SEALED_CACHE_HITS,
    WORD_RING_START,
)
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.disk import PAGE_BYTES, OsDisk
from smq.log.own_tries import RETRY_MS
from smq.model.errors import ErrorCode
from smq.shard.loans import FileRange, LentBatches
from smq.testing.disk import FailingDisk
from smq.wire.generated.fetch import (
    FetchPartition,
)
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import BatchFile, Cold
from tests.gateway.fetch.asking import LARGE_BYTES, fetch, new_bench, offsets, row, rows, wanted
from tests.gateway.shard_api_bench import ShardBench
from tests.log.logs import replace_disk
from tests.shard.shard_bench import NOW_MS, batch, topic


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return new_bench(tmp_path)


@pytest.mark.parametrize("fields", [{"max_bytes": 1}, {}])
def test_the_first_batch_is_returned_even_if_too_large(
    bench: ShardBench, fields: dict[str, int]
) -> None:
    topics = wanted(partition_max_bytes=1)
    assert offsets(row(bench.ask("Fetch", 12, fetch(topics, **fields)))) == [0, 1, 2]


def test_only_the_first_partition_that_has_anything_may_exceed_the_limit(bench: ShardBench) -> None:
    bench.appender.append("u", 0, batch(b"x"))
    topics = wanted("t", FetchPartition(partition=1, partition_max_bytes=1)), wanted(), wanted("u")
    data = list(rows(bench.ask("Fetch", 12, fetch(*topics, max_bytes=1))))
    assert [len(offsets(each)) for each in data] == [0, 3, 0]


def test_records_that_left_the_wal_are_asked_of_the_sealer(
    bench: ShardBench, tmp_path: Path
) -> None:
    bench.shard.logs[0].sealing.advance(3, 8, NOW_MS)  # Sealed segments reach further than the log.
    ask = bench.ask("Fetch", 12, fetch(wanted("u", fetch_offset=2), wanted()))
    assert isinstance(ask, Ask)
    [question] = ask.questions
    assert isinstance(question, Cold)
    assert (question.number, question.offset) == (3, 2)
    cached, cold = tmp_path / "cached", batch(b"cold")
    cached.write_bytes(b"before" + cold)
    response: Any = ask.then([BatchFile(str(cached), 6, len(cold), 3)])
    assert [type(each.records) for each in rows(response)] == [FileRange, LentBatches]
    data = list(rows(bench.read(response)))
    assert [data[0].records, len(offsets(data[1]))] == [cold, 6]


def test_a_fetch_from_sealed_segments_is_counted_with_its_cache_hit(
    bench: ShardBench, tmp_path: Path
) -> None:
    bench.shard.logs[0].sealing.advance(3, 8, NOW_MS)
    cached, counted = tmp_path / "cached", bench.shard.logs[0].words
    cached.write_bytes(b"0123456789")
    before = counted[COUNTER_BYTES_OUT]
    for is_cached in (False, True, True):
        ask = bench.ask("Fetch", 12, fetch(wanted("u")))
        bench.read(ask.then([BatchFile(str(cached), 0, 10, 3, is_cached)]))
    assert counted[COUNTER_FETCHES_FROM_SEALED] == 3
    assert counted[COUNTER_SEALED_CACHE_HITS] == 2
    assert counted[COUNTER_BYTES_OUT] - before == 30


def test_few_partitions_of_an_answer_come_from_the_sealer_within_its_limits(
    tmp_path: Path,
) -> None:
    count = COLD_PARTITIONS_MAX + 2
    bench = ShardBench(tmp_path, topic("cold", range(1, count + 1)))
    for number in range(1, count + 1):
        bench.shard.logs[0].sealing.advance(number, 10, NOW_MS)
    asked = fetch(
        *(wanted("cold", partition=i, partition_max_bytes=1000) for i in range(count)),
        max_bytes=2500,
    )
    ask = bench.ask("Fetch", 12, asked)
    commands = [(each.number, each.bytes_max) for each in ask.questions]
    assert commands == [(1, 1000), (2, 1000), (3, 500)]
    asked = fetch(*(wanted("cold", partition=i) for i in range(count)))
    ask = bench.ask("Fetch", 12, asked)
    assert [each.number for each in ask.questions] == [*range(1, COLD_PARTITIONS_MAX + 1)]
    path = tmp_path / "cached"
    path.write_bytes(b"0123456789")
    said = [BatchFile(str(path), i, 1, 1) for i in range(3)]
    response = ask.then([*said, Failed("it is away")])
    found = list(rows(bench.read(response)))
    assert [each.records for each in found[:3]] == [b"0", b"1", b"2"]
    assert [each.error_code for each in found] == [0, 0, 0, 56, 0, 0]


@pytest.mark.parametrize("said", [Failed("it is away"), BatchFile("/none", 0, 1, 1)])
def test_a_sealer_that_cannot_say_is_a_storage_error(bench: ShardBench, said: Any) -> None:
    bench.shard.logs[0].sealing.advance(3, 8, NOW_MS)
    ask = bench.ask("Fetch", 12, fetch(wanted("u")))
    assert row(bench.read(ask.then([said]))).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_unreadable_batch_is_a_storage_error_until_the_log_has_read_it(
    bench: ShardBench,
) -> None:
    bench.appender.append("u", 0, batch(b"x"))
    log = bench.shard.logs[0]
    log.words[WORD_RING_START] = log.tail  # As after a start: the ring has none of it.
    [segment] = log.wal.segments
    bench.appender.append("u", 0, batch(b"y"))
    segment.bad_pages.note(0, 0, range(log.tail // PAGE_BYTES + 1))
    segment.bad_tried_ms = log.bad_tried_ms = log.now_ms = NOW_MS
    asked = fetch(wanted(), wanted("u", fetch_offset=1), max_wait_ms=500, min_bytes=LARGE_BYTES)
    failed, given = rows(bench.read(bench.ask("Fetch", 12, asked)))
    assert (failed.error_code, failed.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    assert (given.error_code, offsets(given)) == (0, [1])
    log.now_ms += RETRY_MS
    log.own_tries.tend()
    assert offsets(row(bench.read(bench.ask("Fetch", 12, fetch(wanted()))))) == [0, 1, 2, 3, 4, 5]


def test_batches_before_an_unreadable_one_are_given(bench: ShardBench) -> None:
    bench.appender.append("t", 0, batch(bytes(3 * PAGE_BYTES)))
    log = bench.shard.logs[0]
    log.words[WORD_RING_START] = log.tail
    [segment] = log.wal.segments
    segment.bad_pages.note(0, 0, [log.tail // PAGE_BYTES - 1])
    segment.bad_tried_ms = log.bad_tried_ms = log.now_ms = NOW_MS
    assert offsets(row(bench.read(bench.ask("Fetch", 12, fetch(wanted()))))) == [0, 1, 2, 3, 4, 5]
    bad = row(bench.read(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=6)))))
    assert (bad.error_code, bad.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")


def test_a_batch_that_is_given_up_costs_no_connection(bench: ShardBench) -> None:
    """Who asked for it was given the place of zeros, for each 64 batches once more."""
    log = bench.shard.logs[0]
    first = log.tail
    for _ in range(100):
        bench.appender.append("t", 0, batch(bytes(100)))
    log.words[WORD_RING_START] = log.tail
    [segment], disk = log.wal.segments, FailingDisk(OsDisk())
    replace_disk(log, disk)
    bad = range(first // PAGE_BYTES + 1, log.tail // PAGE_BYTES)
    disk.bad_places = [(segment.path.name, bad.start * PAGE_BYTES, bad.stop * PAGE_BYTES)]
    for log.now_ms in range(NOW_MS, NOW_MS + 2 * PATIENCE.wait_ms, RETRY_MS):
        segment.bad_pages.note(0, 0, bad)
        segment.bad_pages.date(log.now_ms)
    segment.bad_tried_ms = log.bad_tried_ms = NOW_MS
    good = offsets(row(bench.read(bench.ask("Fetch", 12, fetch(wanted())))))
    asked = fetch(wanted(fetch_offset=good[-1] + 1))
    failed = row(bench.read(bench.ask("Fetch", 12, asked)))
    assert (failed.error_code, failed.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    later = offsets(row(bench.read(bench.ask("Fetch", 12, asked))))
    assert 80 < later[0] < later[-1] == 105
    assert sum("are lost" in each for each in log.notices) == 1


def test_a_timed_out_fetch_returns_the_records_there_are(bench: ShardBench) -> None:
    wait = bench.ask("Fetch", 12, fetch(wanted(), max_wait_ms=500, min_bytes=LARGE_BYTES))
    assert wait.attempt(is_last=False) is None
    assert len(offsets(row(bench.read(wait.attempt(is_last=True))))) == 6


def test_it_waits_for_min_bytes(bench: ShardBench) -> None:
    size = len(batch(b"x"))
    wait = bench.ask("Fetch", 12, fetch(wanted("u"), max_wait_ms=500, min_bytes=2 * size))
    bench.appender.append("u", 0, batch(b"x"))
    assert wait.look(wait.find_codes()) is None
    bench.appender.append("u", 0, batch(b"y"))
    assert offsets(row(bench.read(wait.look(wait.find_codes())))) == [0, 1]
