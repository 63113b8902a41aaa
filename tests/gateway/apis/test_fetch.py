"""Fetch: which batches are given, when it waits for more; wrong offsets and epochs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.apis.cold_fetch import lent_of
from gateway.apis.fetch import COLD_PARTITIONS_MAX
from gateway.context import Ask, Wait
from shm.kernels.base.words import (
    COUNTER_BYTES_OUT,
    COUNTER_FETCHES_FROM_SEALED,
    COUNTER_SEALED_CACHE_HITS,
)
from smq.model.catalog import INTERNAL_TOPICS
from smq.model.errors import ErrorCode
from smq.shard.lent import FileRange, LentBatches
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import BatchFile, Cold
from smq.wire.records import read_batches
from tests.gateway.shard_api_bench import EPOCH, ShardBench
from tests.shard.shard_bench import NOW_MS, batch, topic

T, U = topic("t", range(1, 3)), topic("u", range(3, 4))
IDS = {"t": T.id, "u": U.id}
LARGE_BYTES = 1 << 20


def wanted(
    name: str = "t", *partitions: FetchPartition, topic_id: UUID | None = None, **fields: int
) -> FetchTopic:
    """A topic of a request: partition 0 if none is given."""
    fields = {"partition_max_bytes": LARGE_BYTES} | fields
    return FetchTopic(
        topic=name,
        topic_id=topic_id or IDS.get(name, UUID(int=99)),
        partitions=list(partitions) or [FetchPartition(**fields)],  # type: ignore[arg-type]
    )


def fetch(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    return FetchRequest(topics=list(topics), **fields)


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    """Batches at 0-2, 3 and 4-5 of partition 0 of t; the others are empty."""
    bench = ShardBench(tmp_path, T, U)
    for values in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f"]):
        bench.appender.append("t", 0, batch(*values))
    return bench


def rows(response: Any) -> Iterator[PartitionData]:
    for each in response.responses:
        yield from each.partitions


def row(response: Any) -> PartitionData:
    """The only partition of an answer."""
    [only] = rows(response)
    return only


def offsets(data: PartitionData) -> list[int]:
    """The offsets of the records in an answer."""
    records: Any = data.records
    return [record.offset for each in read_batches(records) for record in each.records()]


@pytest.mark.parametrize("version", range(4, 19))
def test_whole_batches_are_given_from_the_one_that_holds_the_offset(
    bench: ShardBench, version: int
) -> None:
    data = row(bench.ask("Fetch", version, fetch(wanted(fetch_offset=1))))
    assert data.error_code == ErrorCode.NONE
    assert offsets(data) == [0, 1, 2, 3, 4, 5]
    assert data.high_watermark == data.last_stable_offset == 6


@pytest.mark.parametrize("fields", [{"max_bytes": 1}, {}])
def test_the_first_batch_is_given_whatever_its_size(
    bench: ShardBench, fields: dict[str, int]
) -> None:
    topics = wanted(partition_max_bytes=1)
    assert offsets(row(bench.ask("Fetch", 12, fetch(topics, **fields)))) == [0, 1, 2]


def test_only_the_first_partition_that_has_anything_may_exceed_the_limit(bench: ShardBench) -> None:
    bench.appender.append("u", 0, batch(b"x"))
    topics = wanted("t", FetchPartition(partition=1, partition_max_bytes=1)), wanted(), wanted("u")
    data = list(rows(bench.ask("Fetch", 12, fetch(*topics, max_bytes=1))))
    assert [len(offsets(each)) for each in data] == [0, 3, 0]


@pytest.mark.parametrize(("offset", "is_there"), [(-1, False), (0, True), (6, True), (7, False)])
def test_offsets_outside_of_the_log_are_out_of_range(
    bench: ShardBench, offset: int, is_there: bool
) -> None:
    data = row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=offset))))
    error = ErrorCode.NONE if is_there else ErrorCode.OFFSET_OUT_OF_RANGE
    assert data.error_code == error
    assert data.high_watermark == (6 if is_there else -1)


def test_an_offset_below_the_log_start_is_out_of_range(bench: ShardBench) -> None:
    bench.shard.logs[0].sealing.set_log_start(1, 3)
    assert row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=2)))).error_code == 1
    data = row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=3))))
    assert (data.error_code, data.log_start_offset, offsets(data)) == (0, 3, [3, 4, 5])


def test_with_too_little_to_say_it_waits_and_answers_when_enough_has_come(
    bench: ShardBench,
) -> None:
    asked = fetch(wanted("u"), max_wait_ms=500, min_bytes=1)
    wait = bench.ask("Fetch", 12, asked)
    assert isinstance(wait, Wait)
    assert wait.timeout_ms == 500
    bench.shard.take_moved()
    assert wait.moved(wait.places) is None
    bench.appender.append("u", 0, batch(b"x"))
    assert bench.shard.take_moved() == set(wait.places)
    assert offsets(row(bench.read(wait.moved(wait.places)))) == [0]


def test_it_waits_for_min_bytes(bench: ShardBench) -> None:
    size = len(batch(b"x"))
    wait = bench.ask("Fetch", 12, fetch(wanted("u"), max_wait_ms=500, min_bytes=2 * size))
    bench.appender.append("u", 0, batch(b"x"))
    assert wait.moved(wait.places) is None
    bench.appender.append("u", 0, batch(b"y"))
    assert offsets(row(bench.read(wait.moved(wait.places)))) == [0, 1]


@pytest.mark.parametrize(
    ("asked", "error", "told"),
    [
        (wanted(fetch_offset=9), ErrorCode.OFFSET_OUT_OF_RANGE, None),
        (wanted(current_leader_epoch=99), ErrorCode.UNKNOWN_LEADER_EPOCH, None),
        (wanted("none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        (wanted(), ErrorCode.NONE, []),
    ],
)
def test_a_refused_partition_tells_no_aborted_transactions_unless_it_is_unknown(
    bench: ShardBench, asked: FetchTopic, error: ErrorCode, told: list[object] | None
) -> None:
    """As Kafka does, also to who reads committed records."""
    data = row(bench.ask("Fetch", 11, fetch(asked, isolation_level=1)))
    assert (data.error_code, data.aborted_transactions) == (error, told)


def test_what_is_there_is_given_when_the_time_is_over(bench: ShardBench) -> None:
    wait = bench.ask("Fetch", 12, fetch(wanted(), max_wait_ms=500, min_bytes=LARGE_BYTES))
    assert wait.attempt(is_last=False) is None
    assert len(offsets(row(bench.read(wait.attempt(is_last=True))))) == 6


def test_nobody_waits_with_an_error_without_time_or_without_partitions(bench: ShardBench) -> None:
    waiting = {"max_wait_ms": 500, "min_bytes": 1}
    both = bench.ask("Fetch", 12, fetch(wanted("u"), wanted("t", fetch_offset=9), **waiting))
    assert [each.error_code for each in rows(both)] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert offsets(row(bench.ask("Fetch", 12, fetch(wanted("u"), min_bytes=1)))) == []
    assert bench.ask("Fetch", 12, fetch(**waiting)).responses == []


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, 0), (EPOCH, 0), (EPOCH - 1, 74), (EPOCH + 1, 75)]
)
def test_the_leader_epoch_a_client_believes_in_is_checked(
    bench: ShardBench, epoch: int, error: int
) -> None:
    data = row(bench.ask("Fetch", 9, fetch(wanted(current_leader_epoch=epoch))))
    assert data.error_code == error


def test_a_log_that_was_cut_is_told_where_it_diverges(bench: ShardBench) -> None:
    def ask(epoch: int) -> PartitionData:
        return row(bench.ask("Fetch", 12, fetch(wanted(fetch_offset=6, last_fetched_epoch=epoch))))

    assert ask(EPOCH).diverging_epoch is None
    assert ask(EPOCH + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cut = ask(EPOCH - 1).diverging_epoch
    assert cut is not None
    assert (cut.epoch, cut.end_offset) == (EPOCH - 1, 0)


@pytest.mark.parametrize("session_epoch", [0, -1])
def test_full_fetches_have_session_0(bench: ShardBench, session_epoch: int) -> None:
    response = bench.ask("Fetch", 12, fetch(wanted(), session_epoch=session_epoch))
    assert (response.error_code, response.session_id) == (ErrorCode.NONE, 0)


def test_the_next_step_of_a_session_is_70(bench: ShardBench) -> None:
    response = bench.ask("Fetch", 12, fetch(wanted(), session_id=5, session_epoch=1))
    assert (response.error_code, response.responses) == (70, [])


@pytest.mark.parametrize(
    ("version", "error"),
    [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_topics_are_names_before_13_and_ids_from_there(
    bench: ShardBench, version: int, error: ErrorCode
) -> None:
    assert row(bench.ask("Fetch", version, fetch(wanted("none")))).error_code == error
    known = row(bench.ask("Fetch", version, fetch(wanted("t"))))
    assert known.error_code == ErrorCode.NONE


def test_a_topic_twice_is_one_row_and_the_last_of_a_partition_counts(bench: ShardBench) -> None:
    twice = wanted(fetch_offset=99), wanted("u"), wanted(fetch_offset=4), FetchTopic(topic="none")
    response = bench.ask("Fetch", 12, fetch(*twice))
    assert [each.topic for each in response.responses] == ["t", "u"]
    assert offsets(response.responses[0].partitions[0]) == [4, 5]


@pytest.mark.parametrize(
    ("version", "who"),
    [(12, {"replica_id": 2}), (15, {"replica_state": ReplicaState(replica_id=2)})],
)
def test_a_follower_is_told_that_nobody_follows(
    bench: ShardBench, version: int, who: dict[str, Any]
) -> None:
    data = row(bench.ask("Fetch", version, fetch(wanted(), **who)))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_impossible_limits_and_isolation_levels_are_unknown_server_errors(
    bench: ShardBench,
) -> None:
    answers = [
        row(bench.ask("Fetch", 12, fetch(wanted(), max_bytes=-1))),
        row(bench.ask("Fetch", 12, fetch(wanted(partition_max_bytes=-1)))),
        bench.ask("Fetch", 12, fetch(wanted(), isolation_level=2)),
    ]
    assert {each.error_code for each in answers} == {ErrorCode.UNKNOWN_SERVER_ERROR}


def test_what_has_left_the_wal_is_asked_of_the_sealer(bench: ShardBench, tmp_path: Path) -> None:
    bench.shard.logs[0].sealing.advance(3, 8, NOW_MS)  # Sealed segments reach further than the log.
    ask = bench.ask("Fetch", 12, fetch(wanted("u", fetch_offset=2), wanted()))
    assert isinstance(ask, Ask)
    [question] = ask.questions
    assert isinstance(question, Cold)
    assert (question.number, question.offset) == (3, 2)
    cached, cold = tmp_path / "cached", batch(b"cold")
    cached.write_bytes(b"before" + cold)
    response: Any = ask.then([BatchFile(str(cached), 6, len(cold), 3)])
    assert [type(each) for each in lent_of(response)] == [FileRange, LentBatches]
    data = list(rows(bench.read(response)))
    assert [data[0].records, len(offsets(data[1]))] == [cold, 6]


def test_what_the_sealer_reads_is_counted_and_whether_its_cache_had_it(
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


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_an_internal_topic_is_empty(bench: ShardBench, version: int) -> None:
    topic = INTERNAL_TOPICS["__consumer_offsets"]
    asked = wanted(topic.name, FetchPartition(partition=48), topic_id=topic.id)
    data = row(bench.ask("Fetch", version, fetch(asked)))
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")
    behind = FetchPartition(partition=48, fetch_offset=1)
    data = row(bench.ask("Fetch", version, fetch(wanted(topic.name, behind, topic_id=topic.id))))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    beyond = FetchPartition(partition=50)
    data = row(bench.ask("Fetch", version, fetch(wanted(topic.name, beyond, topic_id=topic.id))))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
