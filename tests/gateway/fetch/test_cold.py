"""Fetches of what has left the log: answers begin with a record, whatever segments have lost."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.context import Ask
from gateway.fetch import answer as answer_module, cold
from gateway.fetch.cold import Unread, storage_error
from gateway.fetch.handle_search import Search
from shm.kernels.base.words import COUNTER_BYTES_OUT, P_DECIDED_END, WORD_RING_START
from smq.log.files.bad_pages import PATIENCE
from smq.log.files.checkpoint import TransactionsCopy
from smq.log.files.disk import PAGE_BYTES
from smq.log.reading import WalRange
from smq.model.errors import ErrorCode
from smq.model.segments import BATCH_BYTES, BatchLimits, SegmentReach
from smq.shard.loans import Loan
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from smq.wire.internal.form import Failed
from smq.wire.internal.reads import BatchFile, Cold
from smq.wire.markers import read_marker
from smq.wire.records import Record, read_batches, write_batch
from tests.gateway.shard_api_bench import EPOCH, ShardBench
from tests.shard.shard_bench import NOW_MS, batch, catalog, topic

T = topic("t", range(1, 3), configs={"max.message.bytes": "100000"})


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    """Partition 0 is sealed below 8; the log has a batch at 8 and 9."""
    bench = ShardBench(tmp_path, T)
    for log in bench.shard.logs.values():
        for number in (1, 2):
            log.sealing.advance(number, 8, NOW_MS)
    bench.appender.append("t", 0, batch(b"i", b"j"))
    return bench


def ask(bench: ShardBench, *partitions: int, **fields: Any) -> Ask:
    """What a fetch from offset 3 asks the sealer."""
    wanted = [
        FetchPartition(partition=index, fetch_offset=3, partition_max_bytes=1 << 20)
        for index in partitions or (0,)
    ]
    topics = [FetchTopic(topic="t", partitions=wanted)]
    asked = bench.ask("Fetch", 12, FetchRequest(topics=topics, **fields))
    assert isinstance(asked, Ask)
    return asked


def gap(end: int) -> BatchFile:
    return BatchFile("", 0, 0, end)


def row(bench: ShardBench, response: Any) -> PartitionData:
    [only] = bench.read(response).responses[0].partitions
    return only  # type: ignore[no-any-return]


def bases(records: Any) -> list[int]:
    return [each.base_offset for each in read_batches(records)]


def test_behind_a_gap_the_answer_goes_on_in_the_log(bench: ShardBench) -> None:
    """Use fault 1."""
    counted = bench.shard.logs[0].words
    before = counted[COUNTER_BYTES_OUT]
    data = row(bench, ask(bench).then([gap(8)]))
    assert bases(data.records) == [8]
    records: Any = data.records
    assert counted[COUNTER_BYTES_OUT] - before == len(records)


def test_records_sealed_after_the_question_are_asked_of_the_sealer_again(
    bench: ShardBench, tmp_path: Path
) -> None:
    asked = ask(bench)
    bench.shard.logs[0].sealing.compact(1, 10, NOW_MS)
    again = asked.then([gap(8)])
    assert isinstance(again, Ask)
    [first], [second] = asked.questions, again.questions
    assert isinstance(first, Cold)
    assert second == replace(first, offset=8)
    path = tmp_path / "cached"
    path.write_bytes(batch(b"i"))
    data = row(bench, again.then([BatchFile(str(path), 0, path.stat().st_size, 10)]))
    assert bases(data.records) == [0]


def aborted_before_and_behind_the_gap(bench: ShardBench) -> None:
    """Producer 5 has aborted from 2 to its marker at 7, producer 6 from 8 to 9."""
    rows = np.array([[1, 5, 0, 2, 7], [1, 6, 0, 8, 9]])
    bench.shard.logs[0].transactions.restore(TransactionsCopy([], [rows]))


def test_an_aborted_transaction_in_a_gap_does_not_hide_committed_records_after_it(
    bench: ShardBench,
) -> None:
    """The marker in the gap is not given, so a client went on to leave out what the same producer
    had committed behind it."""
    aborted_before_and_behind_the_gap(bench)
    asked = ask(bench, isolation_level=1, max_bytes=1 << 20)
    data = row(bench, asked.then([gap(8)]))
    assert bases(data.records) == [8]
    assert [each.producer_id for each in data.aborted_transactions or ()] == [6]


def test_nothing_aborted_is_named_with_sealed_records(bench: ShardBench, tmp_path: Path) -> None:
    """Segments have neither aborted records nor markers, so a client left out what the same
    producer had committed later."""
    aborted_before_and_behind_the_gap(bench)
    path = tmp_path / "cached"
    path.write_bytes(batch(b"i"))
    asked = ask(bench, isolation_level=1, max_bytes=1 << 20)
    data = row(bench, asked.then([BatchFile(str(path), 0, path.stat().st_size, 8)]))
    assert data.aborted_transactions == []


def test_at_the_end_a_marker_moves_the_client_on(bench: ShardBench) -> None:
    """Use fault 1: aiokafka raises at a control batch without a record."""
    data = row(bench, ask(bench, 1).then([gap(8)]))
    assert data.high_watermark == 8
    records: Any = data.records
    [marker] = read_batches(records)
    assert (marker.base_offset, marker.last_offset, marker.leader_epoch) == (7, 7, EPOCH)
    assert read_marker(marker).committed


def test_a_first_batch_that_does_not_fit_is_given_only_to_the_first_partition(
    bench: ShardBench, tmp_path: Path
) -> None:
    """Use fault 4: an answer larger than the client takes at all."""
    asked = ask(bench, 1, 0, max_bytes=10)
    [question] = asked.questions
    assert isinstance(question, Cold)
    assert question.must_give
    asked = ask(bench, 1, 0, max_bytes=3 << 19)
    musts = [each.must_give for each in asked.questions if isinstance(each, Cold)]
    assert musts == [True, False]
    response: Any = asked.then([gap(8), BatchFile("", 0, 0, 3)])
    data = bench.read(response).responses[0].partitions
    assert [bases(each.records) for each in data] == [[7], []]


def test_batches_are_as_small_as_the_topic_and_the_client_need(bench: ShardBench) -> None:
    """Use fault 4."""
    for bytes_max, shared in ((1 << 20, 1 << 16), (99_999, 1 << 16), (20_000, 1 << 14), (9, 1024)):
        [question] = ask(bench, max_bytes=bytes_max).questions
        assert isinstance(question, Cold)
        assert question.limits == BatchLimits(shared, 100_000)
    bench.shard.take_catalog(catalog(topic("t", range(1, 3))), 2)
    [question] = ask(bench).questions
    assert isinstance(question, Cold)
    assert question.limits == BatchLimits(BATCH_BYTES, 1_048_588)


def test_a_topic_that_is_deleted_meanwhile_is_unknown(bench: ShardBench) -> None:
    asked = ask(bench)
    bench.shard.take_catalog(catalog(), 2)
    data = row(bench, asked.then([gap(8)]))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def fail_pages(bench: ShardBench) -> None:
    """The disk cannot read what the log has, which has left the ring."""
    log = bench.shard.logs[0]
    log.words[WORD_RING_START] = log.tail
    [segment] = log.wal.segments
    segment.bad_pages.note(0, 0, range(log.tail // PAGE_BYTES + 1))
    segment.bad_tried_ms = log.bad_tried_ms = log.now_ms = NOW_MS


def test_behind_a_gap_what_the_disk_cannot_read_now_is_a_storage_error(bench: ShardBench) -> None:
    """It was tried for each request, and the connection was closed."""
    asked = ask(bench)
    fail_pages(bench)
    data = row(bench, asked.then([gap(8)]))
    assert (data.error_code, data.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    bench.shard.logs[0].own_tries.tend()
    assert bases(row(bench, ask(bench).then([gap(8)])).records) == [8]


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_producer_of_a_batch_is_read_only_from_what_is_whole(
    bench: ShardBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """Of zeros, for a page that failed for a moment, it was producer 0, whose aborted transactions
    alone were told. And they were judged when all answers had come: the page may have healed."""
    record = Record(0, 0, None, b"k")
    data = write_batch([record], producer_id=0, producer_epoch=0, base_sequence=0)
    bench.appender.append("t", 1, data)
    log = bench.shard.logs[0]
    found = log.find(2, 8, 9, 1 << 20)
    assert found is not None
    fresh = PartitionData()
    rows = np.array([[2, 0, 0, 2, 9], [2, 5, 0, 2, 9]])
    unread = Unread(fresh, log, found, rows, ErrorCode.KAFKA_STORAGE_ERROR)
    log.now_ms = NOW_MS
    got, load = list[bytes | None](), log.load

    def load_zeros(run: WalRange, done: Callable[[np.ndarray], None]) -> None:
        log.wal.segments[0].bad_pages.note(0, 0, [0])
        done(np.zeros(run.length, np.uint8))

    monkeypatch.setattr(log, "load", load if is_whole else load_zeros)
    unread.question().begin(got.append)
    log.wal.segments[0].bad_pages.note(0, PAGE_BYTES, ())
    for log.now_ms in (NOW_MS, NOW_MS + 2 * PATIENCE.wait_ms):
        log.tend()
    assert unread.take(got[0], Search(), Loan()) is None
    assert not log.lookup.has_damage_from(2, 0)
    assert fresh.error_code == (ErrorCode.NONE if is_whole else ErrorCode.KAFKA_STORAGE_ERROR)
    told = fresh.aborted_transactions
    assert [each.producer_id for each in told or ()] == [0] * is_whole


def test_a_storage_error_is_not_leader_or_follower_below_version_6(bench: ShardBench) -> None:
    """Data fault 26: below version 6 they know no KAFKA_STORAGE_ERROR, and give up."""
    asked = FetchTopic(topic="t", partitions=[FetchPartition(fetch_offset=3)])
    for version, error in ((5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, 56)):
        answer = bench.ask("Fetch", version, FetchRequest(topics=[asked]))
        assert isinstance(answer, Ask)
        assert row(bench, answer.then([Failed("it is away")])).error_code == error
        assert storage_error(version) == error


def undecided(bench: ShardBench, tmp_path: Path, end: int) -> BatchFile:
    """Partition 0 is sealed below 8, as it was sent from 2 on; the sealer's answer up to `end`."""
    log = bench.shard.logs[0]
    log.partitions.table[log.partitions.slots[1], P_DECIDED_END] = 2
    path = tmp_path / "cached"
    path.write_bytes(batch(b"i"))
    return BatchFile(str(path), 0, path.stat().st_size, end, is_undecided=True)


def test_undecided_batches_are_returned_with_their_aborted_transactions(
    bench: ShardBench, tmp_path: Path
) -> None:
    """Use fault 2: of what is answered, as from the log; the log may have forgotten it since."""
    aborted_before_and_behind_the_gap(bench)
    said = undecided(bench, tmp_path, 8)
    asked = ask(bench, isolation_level=1, max_bytes=1 << 20)
    [question] = asked.questions
    assert isinstance(question, Cold)
    assert question.reach == SegmentReach(10, 10)
    bench.shard.logs[0].sealing.advance(1, 10, NOW_MS)
    data = row(bench, asked.then([said]))
    assert [each.producer_id for each in data.aborted_transactions or ()] == [5]


def test_undecided_records_end_where_too_many_were_aborted(
    bench: ShardBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use fault 2. The first batch is given whatever was aborted in it."""
    monkeypatch.setattr(answer_module, "ABORTED_MAX", 1)
    aborted_before_and_behind_the_gap(bench)
    undecided(bench, tmp_path, 8)
    [question] = ask(bench, isolation_level=1, max_bytes=1 << 20).questions
    assert isinstance(question, Cold)
    assert question.reach == SegmentReach(10, 8)


def test_read_uncommitted_gets_no_aborted_transactions(bench: ShardBench, tmp_path: Path) -> None:
    aborted_before_and_behind_the_gap(bench)
    said = undecided(bench, tmp_path, 8)
    data = row(bench, ask(bench, isolation_level=0, max_bytes=1 << 20).then([said]))
    assert data.aborted_transactions is None


def test_an_undecided_batch_with_too_many_aborted_transactions_lists_its_producers(
    bench: ShardBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use fault 2: as from the log."""
    monkeypatch.setattr(cold, "ABORTED_MAX", 0)
    aborted_before_and_behind_the_gap(bench)
    for producer_id in (5, 6):
        said = undecided(bench, tmp_path, 8)
        record = Record(0, 0, None, b"i")
        data = write_batch([record], producer_id=producer_id, base_sequence=0)
        Path(said.path).write_bytes(data)
        asked = ask(bench, isolation_level=1, max_bytes=1 << 20)
        told = row(bench, asked.then([replace(said, length=len(data))])).aborted_transactions
        assert [each.producer_id for each in told or ()] == [5] * (producer_id == 5)
