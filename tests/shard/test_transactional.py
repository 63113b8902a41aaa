"""Produce with a transactional id: questions to the coordinator, and appends."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import FLAG_CLOSED, P_FLAGS, P_LAST_STABLE, WORD_SEGMENT_BYTES
from shm.kernels.log.producers import R_EPOCH, producer_row
from smq.model.errors import ErrorCode, PeerError
from smq.shard import transactional
from smq.shard.led import Offsets
from smq.shard.produce import Produced, Producing
from smq.shard.shard import Shard
from smq.shard.transactional import TransactionalProduce
from smq.shard.unfinished import HeldBack
from smq.wire.generated.produce import read_produce_response
from smq.wire.headers import read_response_header
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import AddPartitions
from smq.wire.markers import Marker
from smq.wire.records import crc_of
from tests.shard.shard_bench import NOW, PRODUCE, batch, new_shard, topic
from tests.shard.transactional_bench import (
    Producers,
    errors_of,
    transactional_batch,
    transactional_request,
)

PRODUCER = (7, 3)
NUMBER = 1


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return new_shard(tmp_path, topic("one"), topic("two", range(5, 7)))


def answers(request: TransactionalProduce) -> list[tuple[int, int]]:
    """(error, base offset) of each partition of a request that needs one more step."""
    produced = request.step(NOW)
    assert isinstance(produced, Produced)
    return errors_of(bytes(produced.answers))


def offsets(shard: Shard, number: int = NUMBER) -> Offsets:
    led = shard.by_number(number)
    assert led is not None
    return led.offsets()


def test_the_coordinator_is_asked_once_for_each_partition_of_a_transaction(shard: Shard) -> None:
    producers = Producers(shard)
    data = {
        "two": {0: transactional_batch(b"a", producer=PRODUCER), 1: batch(b"no transaction")},
        "one": {0: transactional_batch(b"b", producer=PRODUCER)},
        "none": {0: transactional_batch(b"c", producer=PRODUCER)},
    }
    first = producers.begin(transactional_request(data))
    assert first.step(NOW) == AddPartitions("t", *PRODUCER, [1, 5], 0, verify_only=False)
    first.take([0, 0])
    assert answers(first) == [(0, 0), (0, 0), (0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    more = transactional_batch(b"d", producer=PRODUCER, sequence=1)
    second = producers.begin(transactional_request({"one": {0: more}}))
    assert answers(second) == [(0, 1)], "the transaction is open there"
    producers.end_turn()
    assert offsets(shard).last_stable == 0
    assert offsets(shard, 6).last_stable == 1, "no transaction is open there"


def test_a_client_that_adds_partitions_itself_has_them_only_verified(shard: Shard) -> None:
    record = {"one": {0: transactional_batch(b"a", producer=PRODUCER)}}
    request = Producers(shard).begin(transactional_request(record, version=11))
    assert request.step(NOW) == AddPartitions("t", *PRODUCER, [NUMBER], 0, verify_only=True)


@pytest.mark.parametrize(
    ("version", "said", "told"),
    [
        (12, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_an_error_of_the_coordinator_is_translated_as_in_kafka(
    shard: Shard, version: int, said: ErrorCode, told: ErrorCode
) -> None:
    record = {"one": {0: transactional_batch(b"a", producer=PRODUCER)}}
    request = transactional_request(record, version=version)
    assert Producers(shard).send(request, [int(said)], version) == [(told, -1)]
    assert offsets(shard).log_end == 0


@pytest.mark.parametrize("version", [7, 8, 10, 11])
def test_a_partition_that_is_not_of_the_transaction_is_refused_in_kafkas_words(
    shard: Shard, version: int
) -> None:
    record = transactional_batch(b"a", producer=PRODUCER)
    request = transactional_request({"one": {0: record}, "none": {0: record}}, version=version)
    produce = Producers(shard).begin(request)
    assert isinstance(produce.step(NOW), AddPartitions)
    produce.take([int(ErrorCode.TRANSACTION_ABORTABLE)])
    produced = produce.step(NOW)
    assert isinstance(produced, Produced)
    answer = bytes(produced.answers)[4:]
    _, at = read_response_header(answer, 0, PRODUCE, version)
    topics = read_produce_response(answer, at, version).responses
    told = {each.name: each.partition_responses[0] for each in topics}
    words = "Partition was not added to the transaction" if 8 <= version <= 10 else None
    assert told["one"].error_message == words
    assert (told["none"].error_code, told["none"].error_message) == (3, None)


def test_without_a_coordinator_the_client_tries_again(shard: Shard) -> None:
    request = transactional_request({"one": {0: transactional_batch(b"a", producer=PRODUCER)}})
    failed = Failed("the coordinator is gone")
    assert Producers(shard).send(request, failed) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]


def test_a_request_waits_once_for_the_former_transaction(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question waits up to 100 ms: a request of 10,000 partitions took 4 s."""
    monkeypatch.setattr(transactional, "STEP_ROWS", 1)
    record = transactional_batch(b"a", producer=PRODUCER)
    produce = Producers(shard).begin(transactional_request({"two": {0: record, 1: record}}))
    assert isinstance(produce.step(NOW), AddPartitions)
    produce.take([int(ErrorCode.CONCURRENT_TRANSACTIONS)])
    assert produce.step(NOW) is None
    assert answers(produce) == [(ErrorCode.CONCURRENT_TRANSACTIONS, -1)] * 2


def test_a_log_that_has_failed_is_not_noted_as_written(shard: Shard) -> None:
    """Data fault 21: the note would abort the commit if the log's start could write nothing."""
    shard.logs[0].health.fail("EIO", 0)
    request = Producers(shard).begin(
        transactional_request({"one": {0: transactional_batch(b"a", producer=PRODUCER)}})
    )
    assert answers(request) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_a_log_whose_start_is_not_noted_is_not_noted_as_written(shard: Shard) -> None:
    """Data fault 21, its kind: the next start took this one for a loss, and the commit aborted."""
    shard.logs[0].losses.is_saved = False
    record = transactional_batch(b"a", producer=PRODUCER)
    producers = Producers(shard)
    request = producers.begin(transactional_request({"one": {0: record}}))
    assert answers(request) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    shard.logs[0].tend()
    request = producers.begin(transactional_request({"one": {0: record}}))
    assert isinstance(request.step(NOW), AddPartitions)


def test_a_marker_that_comes_while_the_coordinator_is_asked_refuses_the_batch(shard: Shard) -> None:
    producers = Producers(shard)
    record = transactional_batch(b"a", producer=PRODUCER)
    request = producers.begin(transactional_request({"one": {0: record}}))
    assert isinstance(request.step(NOW), AddPartitions)
    producers.end(NUMBER, Marker(*PRODUCER, committed=False, coordinator_epoch=0))
    request.take([0])
    [(error, _)] = answers(request)
    assert error == ErrorCode.INVALID_TXN_STATE
    assert shard.verifying == {}


def test_a_request_that_two_producers_have_written_is_refused(shard: Shard) -> None:
    data = {
        "one": {0: transactional_batch(b"a", producer=PRODUCER)},
        "two": {0: transactional_batch(b"a", producer=(8, 0))},
    }
    found = Producers(shard).send(transactional_request(data))
    assert [error for error, _ in found] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


def test_a_repeated_batch_of_an_ended_transaction_opens_nothing(shard: Shard) -> None:
    producers = Producers(shard)
    assert producers.write([b"a"], PRODUCER) == 0
    producers.end(NUMBER, Marker(*PRODUCER, committed=True, coordinator_epoch=0))
    again = transactional_request({"one": {0: transactional_batch(b"a", producer=PRODUCER)}})
    assert producers.send(again) == [(0, 0)]
    assert offsets(shard).last_stable == offsets(shard).log_end == 2


def test_a_batch_without_a_transaction_of_a_producer_that_has_one_open_is_refused(
    shard: Shard,
) -> None:
    producers = Producers(shard)
    producers.write([b"a"], PRODUCER)
    plain = bytearray(transactional_batch(b"b", producer=PRODUCER, sequence=1))
    plain[22] &= ~16
    plain[17:21] = crc_of(plain).to_bytes(4)
    [(error, _)] = producers.send(transactional_request({"one": {0: bytes(plain)}}))
    assert error == ErrorCode.INVALID_TXN_STATE


def test_open_transactions_are_never_stable_while_the_log_is_drained(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, topic("one", range(1, 65)))
    seen: list[int] = []

    def drain(log: object) -> None:
        shard.drain(log)  # type: ignore[arg-type]
        table = shard.logs[0].partitions.table
        seen.append(int(table[:64, P_LAST_STABLE].max()))

    producers = Producers(shard)
    producers.transactional = Producing(shard.logs, shard.config, drain, in_steps=True)
    size = shard.logs[0].words[WORD_SEGMENT_BYTES] // 8
    data = {i: transactional_batch(bytes(size), producer=PRODUCER) for i in range(60)}
    found = producers.send(transactional_request({"one": data}))
    assert found == [(0, 0)] * 60
    assert seen, "the ring is smaller than the request"
    assert max(seen) == 0
    shard.invariants()


@pytest.mark.parametrize("cut", [9, 20, 40])
def test_a_truncated_request_raises_peer_error(shard: Shard, cut: int) -> None:
    whole = transactional_request({"one": {0: transactional_batch(b"a", producer=PRODUCER)}})
    body = whole[4:-cut]
    data = np.frombuffer(bytearray(len(body).to_bytes(4) + body), np.uint8)
    with pytest.raises(PeerError):
        Producers(shard).begin(bytes(data)).step(NOW)


def test_a_transaction_aborts_what_is_open_of_an_earlier_one(shard: Shard) -> None:
    """The coordinator has ended it, and a power loss has taken the marker."""
    producers = Producers(shard)
    producers.write([b"earlier"], (7, 3))
    assert producers.write([b"next"], (7, 4)) == 2, "behind a marker"
    transactions = shard.logs[0].transactions
    [opened] = transactions.opened()
    assert (opened.epoch, opened.first_offset) == (4, 2)
    assert [each[:4] for each in transactions.aborted_in(1, 0, 9, 9).rows] == [(1, 7, 3, 0)]


def test_an_open_transaction_of_an_earlier_epoch_is_aborted_before_the_next(
    shard: Shard,
) -> None:
    """The power loss took later transactions too, and the checkpoint had their epoch."""
    producers = Producers(shard)
    producers.write([b"earlier"], (7, 3))
    table = shard.logs[0].producers.table
    table[producer_row(table, 1, 7), R_EPOCH] = 5
    assert producers.write([b"next"], (7, 6)) == 2, "behind a marker"
    transactions = shard.logs[0].transactions
    [opened] = transactions.opened()
    assert (opened.epoch, opened.first_offset) == (6, 2)
    assert [each[:4] for each in transactions.aborted_in(1, 0, 9, 9).rows] == [(1, 7, 3, 0)]


def test_a_batch_does_not_join_an_earlier_transaction_that_cannot_be_aborted(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = Producers(shard)
    producers.write([b"earlier"], (7, 3))
    monkeypatch.setattr("smq.shard.transactional.abort_open", lambda *_: False)
    request = transactional_request({"one": {0: transactional_batch(b"next", producer=(7, 4))}})
    failed = int(ErrorCode.KAFKA_STORAGE_ERROR)
    assert producers.send(request, [0]) == [(failed, -1)]
    [opened] = shard.logs[0].transactions.opened()
    assert (opened.epoch, opened.first_offset) == (3, 0)


def test_an_open_transaction_stays_when_the_coordinator_refuses_the_next(
    shard: Shard,
) -> None:
    producers = Producers(shard)
    producers.write([b"earlier"], (7, 3))
    request = transactional_request({"one": {0: transactional_batch(b"next", producer=(7, 4))}})
    busy = int(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert producers.send(request, [busy]) == [(busy, -1)]
    [opened] = shard.logs[0].transactions.opened()
    assert (opened.epoch, opened.first_offset) == (3, 0)


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_TXN_STATE), (2, 0)])
def test_a_marker_that_is_repeated_does_not_refuse_the_next_transaction(
    shard: Shard, version: int, error: int
) -> None:
    """Where epochs grow they tell the one from the other."""
    producers = Producers(shard)
    batch = transactional_batch(b"next", producer=(7, 4))
    request = producers.begin(transactional_request({"one": {0: batch}}))
    assert request.step(NOW) is not None
    producers.end(1, Marker(7, 4, committed=True, coordinator_epoch=0), version=version)
    request.take([0])
    [(found, _)] = answers(request)
    assert found == error
    producers.end_turn()


def test_the_coordinator_is_asked_once_the_partition_is_open(shard: Shard) -> None:
    producers = Producers(shard)
    row = shard.logs[0].partitions.table[shard.logs[0].partitions.slots[NUMBER]]
    row[P_FLAGS] |= FLAG_CLOSED
    data = {"one": {0: transactional_batch(b"a", producer=PRODUCER)}}
    request = producers.begin(transactional_request(data))
    assert isinstance(request.step(NOW), HeldBack)
    assert shard.verifying == {}
    row[P_FLAGS] &= ~FLAG_CLOSED
    assert isinstance(request.step(NOW), AddPartitions)
    row[P_FLAGS] |= FLAG_CLOSED
    request.take([0])
    assert isinstance(request.step(NOW), HeldBack)
    request.hold_no_longer()
    assert answers(request) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert offsets(shard).log_end == 0
