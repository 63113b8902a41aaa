"""ListOffsets: the ends, offsets by time in log and segments, special times by version."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.apis import list_offsets
from gateway.apis.list_offsets import PARTITIONS_A_TURN
from gateway.context import Ask, Later
from gateway.dispatch import dispatch
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import BATCH_ATTRIBUTES_AT, BATCH_CRC_AT, BATCH_MAX_TIMESTAMP_AT
from smq.model.errors import ErrorCode
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import NewestRecord, OffsetForTime, RecordTime
from smq.wire.records import Record, write_batch
from tests.gateway.coordinator_bench import relayed
from tests.gateway.shard_api_bench import EPOCH, ShardBench
from tests.shard.shard_bench import NOW, NOW_MS, batch, catalog, topic

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
SPECIAL_FROM = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
LAST_VERSION = 11
T, EMPTY = topic("t"), topic("empty", range(2, 3))


def request(
    *timestamps: int, name: str = "t", index: int = 0, current: int = -1, isolation: int = 0
) -> ListOffsetsRequest:
    """One partition, once for each timestamp."""
    asked = [
        ListOffsetsPartition(
            partition_index=index, current_leader_epoch=current, timestamp=timestamp
        )
        for timestamp in timestamps
    ]
    topics = [ListOffsetsTopic(name=name, partitions=asked)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)


def only(response: Any) -> Any:
    """The only partition of an answer."""
    [each] = response.topics
    [partition] = each.partitions
    return partition


def found(response: Any) -> tuple[int, int]:
    """Offset and timestamp of an answer without error."""
    answer = only(response)
    assert answer.error_code == ErrorCode.NONE
    return answer.offset, answer.timestamp


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    """Offsets 0-2 at 0-2 ms, 3-4 at 100-101 ms, 5 at 50 ms."""
    bench = ShardBench(tmp_path, T, EMPTY)
    for values, after_ms in (([b"a", b"b", b"c"], 0), ([b"d", b"e"], 100), ([b"f"], 50)):
        bench.appender.append("t", 0, batch(*values, first_ms=NOW_MS + after_ms))
    return bench


@pytest.mark.parametrize("version", range(1, LAST_VERSION + 1))
@pytest.mark.parametrize("isolation", [0, 1])
def test_latest_and_earliest_are_the_ends(bench: ShardBench, version: int, isolation: int) -> None:
    bench.shard.logs[0].sealing.set_log_start(1, 2)
    latest = bench.ask("ListOffsets", version, request(LATEST, isolation=isolation))
    earliest = bench.ask("ListOffsets", version, request(EARLIEST, isolation=isolation))
    assert (found(latest), found(earliest)) == ((6, -1), (2, -1))
    assert only(latest).leader_epoch == (EPOCH if version >= 4 else -1)


@pytest.mark.parametrize(
    ("after_ms", "offset", "at_ms"),
    [(-5, 0, 0), (0, 0, 0), (1, 1, 1), (3, 3, 100), (60, 3, 100), (101, 4, 101)],
)
def test_a_time_is_the_first_record_at_or_after_it(
    bench: ShardBench, after_ms: int, offset: int, at_ms: int
) -> None:
    answer = bench.ask("ListOffsets", 7, request(NOW_MS + after_ms))
    assert found(answer) == (offset, NOW_MS + at_ms)


def test_a_time_after_all_records_is_no_error(bench: ShardBench) -> None:
    assert found(bench.ask("ListOffsets", 7, request(NOW_MS + 102))) == (-1, -1)
    assert found(bench.ask("ListOffsets", 7, request(0, name="empty"))) == (-1, -1)


def test_a_time_does_not_find_what_is_below_the_log_start(bench: ShardBench) -> None:
    bench.shard.logs[0].sealing.set_log_start(1, 1)
    assert found(bench.ask("ListOffsets", 7, request(NOW_MS))) == (1, NOW_MS + 1)


def test_the_largest_timestamp_is_not_the_last_record_s(bench: ShardBench) -> None:
    assert found(bench.ask("ListOffsets", 7, request(MAX_TIMESTAMP))) == (4, NOW_MS + 101)
    assert found(bench.ask("ListOffsets", 7, request(MAX_TIMESTAMP, name="empty"))) == (-1, -1)


@pytest.mark.parametrize(
    ("special", "offset"), [(EARLIEST_LOCAL, 0), (LATEST_TIERED, -1), (EARLIEST_PENDING, -1)]
)
def test_nothing_is_tiered(bench: ShardBench, special: int, offset: int) -> None:
    assert found(bench.ask("ListOffsets", LAST_VERSION, request(special))) == (offset, -1)


@pytest.mark.parametrize(("special", "first"), list(SPECIAL_FROM.items()))
def test_a_special_time_before_its_version_is_35(
    bench: ShardBench, special: int, first: int
) -> None:
    assert only(bench.ask("ListOffsets", first - 1, request(special))).error_code == 35
    assert only(bench.ask("ListOffsets", first, request(special))).error_code == 0


def test_a_special_time_that_is_none_is_35(bench: ShardBench) -> None:
    assert only(bench.ask("ListOffsets", LAST_VERSION, request(-7))).error_code == 35


@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, 0), (EPOCH, 0), (EPOCH - 1, 74), (EPOCH + 1, 75)]
)
def test_the_leader_epoch_a_client_believes_in_is_checked(
    bench: ShardBench, epoch: int, error: int
) -> None:
    assert only(bench.ask("ListOffsets", 4, request(LATEST, current=epoch))).error_code == error


def test_a_partition_named_twice_is_an_invalid_request_once(bench: ShardBench) -> None:
    answer = bench.ask("ListOffsets", 7, request(LATEST, EARLIEST))
    assert only(answer).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_named_thrice_is_one_row_and_its_partitions_are_looked_at_once(
    bench: ShardBench,
) -> None:
    [mine], [other] = request(NOW_MS).topics, request(LATEST, index=1).topics
    thrice = ListOffsetsRequest(replica_id=-1, topics=[mine, mine, mine])
    answer = bench.ask("ListOffsets", 7, thrice)
    assert only(answer).error_code == ErrorCode.INVALID_REQUEST
    assert bench.later_count == 0
    both = ListOffsetsRequest(replica_id=-1, topics=[mine, other])
    [row] = bench.ask("ListOffsets", 7, both).topics
    assert [(each.partition_index, each.error_code) for each in row.partitions] == [(0, 0), (1, 3)]


def asked_later(bench: ShardBench, *timestamps: int, **named: Any) -> Ask:
    """What a request waits for, of which nothing is done yet."""
    frame = relayed("ListOffsets", 7, request(*timestamps, **named)).request
    bench.asked = dispatch(frame, bench.shard, NOW)
    assert isinstance(bench.asked.result, Ask)
    return bench.asked.result


def test_no_record_is_looked_at_in_the_loop(bench: ShardBench) -> None:
    for timestamp in (NOW_MS, MAX_TIMESTAMP):
        [command] = asked_later(bench, timestamp).questions
        assert isinstance(command, Later)


def test_many_partitions_are_answered_in_turns(tmp_path: Path) -> None:
    count = 2 * PARTITIONS_A_TURN + 1
    bench = ShardBench(tmp_path, topic("many", range(1, count + 1)))
    asked = [ListOffsetsPartition(partition_index=i, timestamp=LATEST) for i in range(count)]
    topics = [ListOffsetsTopic(name="many", partitions=asked)]
    answer = bench.ask("ListOffsets", 7, ListOffsetsRequest(replica_id=-1, topics=topics))
    [row] = answer.topics
    found = [(each.partition_index, each.error_code, each.offset) for each in row.partitions]
    assert found == [(i, 0, 0) for i in range(count)]
    assert bench.later_count == 2


def lying(first: int, *times_ms: int, promised_ms: int) -> bytes:
    """A batch whose header promises a later record than it has."""
    data = bytearray(write_batch([Record(i, t, None, b"") for i, t in enumerate(times_ms, first)]))
    data[BATCH_MAX_TIMESTAMP_AT : BATCH_MAX_TIMESTAMP_AT + 8] = promised_ms.to_bytes(8)
    crc = int(crc32c(np.frombuffer(data, np.uint8), BATCH_ATTRIBUTES_AT, len(data)))
    data[BATCH_CRC_AT : BATCH_CRC_AT + 4] = crc.to_bytes(4)
    return bytes(data)


def test_behind_a_batch_that_has_no_such_record_the_next_is_looked_at(bench: ShardBench) -> None:
    later = NOW_MS + 1000
    bench.appender.append("t", 0, lying(0, NOW_MS, NOW_MS, promised_ms=later + 5))
    assert found(bench.ask("ListOffsets", 7, request(later))) == (-1, -1)
    bench.appender.append("t", 0, batch(b"x", first_ms=later))
    assert found(bench.ask("ListOffsets", 7, request(later))) == (8, later)


def test_records_below_the_log_start_do_not_hide_later_ones_of_their_batch(
    bench: ShardBench,
) -> None:
    bench.appender.append("t", 0, lying(0, NOW_MS + 500, NOW_MS, promised_ms=NOW_MS + 500))
    bench.appender.append("t", 0, batch(b"x", first_ms=NOW_MS + 500))
    bench.shard.logs[0].sealing.set_log_start(1, 7)
    assert found(bench.ask("ListOffsets", 7, request(NOW_MS + 400))) == (8, NOW_MS + 500)


def test_a_request_that_has_had_its_share_is_answered_as_the_header_says(
    bench: ShardBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_offsets, "INFLATED_BYTES_MAX", 1)
    later = NOW_MS + 1000
    for _ in range(3):
        bench.appender.append("t", 0, lying(0, NOW_MS, NOW_MS, promised_ms=later + 5))
    assert found(bench.ask("ListOffsets", 7, request(later))) == (8, later + 5)
    assert bench.later_count == 2


def test_a_topic_deleted_while_a_batch_is_looked_into_is_unknown(bench: ShardBench) -> None:
    ask = asked_later(bench, NOW_MS)
    answers: list[Any] = []
    [command] = ask.questions
    assert isinstance(command, Later)
    command.begin(answers.append)
    bench.shard.take_catalog(catalog(EMPTY), 2)
    answer = only(bench.read(ask.then(answers)))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_deleted_before_its_turn_is_unknown(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("t", range(1, 3)))
    for index in (0, 1):
        bench.appender.append("t", index, batch(b"a"))
    asked = [ListOffsetsPartition(partition_index=i, timestamp=NOW_MS) for i in range(2)]
    topics = [ListOffsetsTopic(name="t", partitions=asked)]
    message = ListOffsetsRequest(replica_id=-1, topics=topics)
    bench.asked = dispatch(relayed("ListOffsets", 7, message).request, bench.shard, NOW)
    ask, answers = bench.asked.result, list[Any]()
    assert isinstance(ask, Ask)
    [command] = ask.questions
    assert isinstance(command, Later)
    command.begin(answers.append)
    bench.shard.take_catalog(catalog(), 2)
    [row] = bench.read(ask.then(answers)).topics
    assert [each.error_code for each in row.partitions] == [3, 3]


@pytest.mark.parametrize(("name", "index"), [("none", 0), ("t", 1)])
def test_a_partition_that_is_not_is_unknown(bench: ShardBench, name: str, index: int) -> None:
    answer = only(bench.ask("ListOffsets", 7, request(LATEST, name=name, index=index)))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def asked_of_the_sealer(bench: ShardBench, timestamp: int) -> Ask:
    """What is asked once offsets 0-2 are sealed."""
    bench.shard.logs[0].sealing.advance(1, 3, NOW_MS)
    ask = bench.ask("ListOffsets", 7, request(timestamp))
    assert isinstance(ask, Ask)
    return ask


def test_a_time_in_sealed_segments_is_what_the_sealer_says(bench: ShardBench) -> None:
    ask = asked_of_the_sealer(bench, NOW_MS + 1)
    assert ask.questions == [OffsetForTime(number=1, timestamp=NOW_MS + 1, limit=6)]
    said = RecordTime(offset=1, timestamp=NOW_MS + 1)
    assert found(bench.read(ask.then([said]))) == (1, NOW_MS + 1)


def test_a_time_that_the_sealer_does_not_find_is_looked_for_behind(bench: ShardBench) -> None:
    ask = asked_of_the_sealer(bench, NOW_MS + 50)
    assert found(bench.read(ask.then([None]))) == (3, NOW_MS + 100)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, (4, 101)),
        (RecordTime(1, NOW_MS + 1), (4, 101)),
        (RecordTime(1, NOW_MS + 101), (1, 101)),
        (RecordTime(1, NOW_MS + 999), (1, 999)),
    ],
)
def test_the_largest_timestamp_is_that_of_segments_or_of_the_log(
    bench: ShardBench, said: RecordTime | None, expected: tuple[int, int]
) -> None:
    ask = asked_of_the_sealer(bench, MAX_TIMESTAMP)
    assert ask.questions == [NewestRecord(number=1, log_start=0, limit=6)]
    offset, after_ms = expected
    assert found(bench.read(ask.then([said]))) == (offset, NOW_MS + after_ms)


@pytest.mark.parametrize(
    ("log_start", "expected"), [(0, (4, 101)), (4, (4, 101)), (5, (5, 50)), (6, (-1, None))]
)
def test_the_largest_timestamp_is_that_of_what_is_left(
    bench: ShardBench, log_start: int, expected: tuple[int, int | None]
) -> None:
    """Data fault 30: it was -1 once the record with the largest time had been deleted."""
    bench.shard.logs[0].sealing.set_log_start(1, log_start)
    offset, after_ms = expected
    timestamp = -1 if after_ms is None else NOW_MS + after_ms
    assert found(bench.ask("ListOffsets", 7, request(MAX_TIMESTAMP))) == (offset, timestamp)


def test_the_largest_timestamp_is_left_within_a_batch(bench: ShardBench) -> None:
    """Data fault 30."""
    records = [Record(i, NOW_MS + time, None, b"v") for i, time in enumerate((500, 300, 400, 200))]
    base = bench.appender.append("t", 0, write_batch(records))
    bench.appender.append("t", 0, batch(b"z", first_ms=NOW_MS + 350))
    for start, expected in ((0, (0, 500)), (1, (2, 400)), (3, (4, 350)), (4, (4, 350))):
        bench.shard.logs[0].sealing.set_log_start(1, base + start)
        answer = bench.ask("ListOffsets", 7, request(MAX_TIMESTAMP))
        assert found(answer) == (base + expected[0], NOW_MS + expected[1])


def test_records_sealed_during_a_search_by_time_are_asked_of_the_sealer_again(
    bench: ShardBench,
) -> None:
    """Data fault 30: the log may have lost it by then, and an earlier seal did not have it."""
    ask = asked_of_the_sealer(bench, NOW_MS + 50)
    bench.shard.logs[0].sealing.advance(1, 5, NOW_MS)
    again: Any = ask.then([None])
    assert again.questions == [OffsetForTime(number=1, timestamp=NOW_MS + 50, log_start=3, limit=6)]
    assert found(bench.read(again.then([None]))) == (5, NOW_MS + 50)
    ask = asked_of_the_sealer(bench, MAX_TIMESTAMP)
    bench.shard.logs[0].sealing.advance(1, 6, NOW_MS)
    again = ask.then([RecordTime(1, NOW_MS + 1)])
    assert again.questions == [NewestRecord(number=1, log_start=0, limit=6)]
    assert found(bench.read(again.then([RecordTime(4, NOW_MS + 101)]))) == (4, NOW_MS + 101)


def test_a_record_that_is_deleted_while_the_sealer_looks_is_no_answer(bench: ShardBench) -> None:
    ask = asked_of_the_sealer(bench, NOW_MS + 1)
    bench.shard.logs[0].sealing.set_log_start(1, 2)
    again: Any = ask.then([RecordTime(1, NOW_MS + 1)])
    assert again.questions == [OffsetForTime(number=1, timestamp=NOW_MS + 1, log_start=2, limit=6)]


def test_a_sealer_that_cannot_say_is_a_storage_error(bench: ShardBench) -> None:
    answer = bench.read(asked_of_the_sealer(bench, NOW_MS).then([Failed("it is away")]))
    assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_topic_deleted_while_the_sealer_was_asked_is_unknown(bench: ShardBench) -> None:
    ask = asked_of_the_sealer(bench, NOW_MS)
    bench.shard.take_catalog(catalog(EMPTY), 2)
    answer = only(bench.read(ask.then([None])))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("time", "offset"), [(LATEST, 0), (EARLIEST, 0), (NOW_MS, -1)])
def test_an_internal_topic_is_empty(bench: ShardBench, time: int, offset: int) -> None:
    assert found(bench.ask("ListOffsets", 7, request(time, name="__consumer_offsets"))) == (
        offset,
        -1,
    )
