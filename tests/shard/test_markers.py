"""How a transaction ends in a partition: once, in the order of epochs, durable when it is said."""

from pathlib import Path

import pytest

from shm.kernels.base.words import P_FLAGS, WORD_SPACE_END
from shm.kernels.log.producers import R_EPOCH, R_OPEN, fence_producer, producer_row
from smq.log.files.disk import OsDisk
from smq.log.log import Log
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.shard.markers import abort_open, end_transaction
from smq.shard.shard import Shard
from smq.wire.markers import Marker
from tests.shard.shard_bench import (
    NODES,
    NOW,
    NOW_MS,
    SECRET,
    HeldSyncer,
    catalog,
    new_log,
    new_shard,
    topic,
)
from tests.shard.transactional_bench import (
    Producers,
    transactional_batch,
    transactional_request,
)

NUMBER = 1
PRODUCER = (7, 3)
COMMIT, ABORT = Marker(7, 3, True, 2), Marker(7, 3, False, 2)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return new_shard(tmp_path, topic("one"))


@pytest.fixture
def producers(shard: Shard) -> Producers:
    return Producers(shard)


def stable(shard: Shard) -> tuple[int, int]:
    led = shard.by_number(NUMBER)
    assert led is not None
    return led.offsets().last_stable, led.offsets().log_end


def test_a_marker_ends_what_is_open_and_a_second_one_appends_nothing(
    shard: Shard, producers: Producers
) -> None:
    producers.write([b"a", b"b"], PRODUCER)
    assert stable(shard) == (0, 2)
    for _ in range(2):
        ending = producers.end(NUMBER, COMMIT)
        assert ending.outcome(shard) == ErrorCode.NONE
        assert stable(shard) == (3, 3)
    assert shard.logs[0].transactions.aborted_in(NUMBER, 0, 9, 9).rows == []


def test_an_aborted_transaction_is_remembered_with_its_first_offset_and_its_marker(
    shard: Shard, producers: Producers
) -> None:
    producers.write([b"a", b"b"], PRODUCER)
    producers.write([b"x"], (9, 0))
    producers.end(NUMBER, ABORT)
    assert stable(shard) == (2, 4), "the other producer's is still open"
    [aborted] = shard.logs[0].transactions.aborted_in(NUMBER, 0, 9, 9).rows
    assert aborted == (NUMBER, *PRODUCER, 0, 3)
    assert shard.logs[0].transactions.aborted_in(NUMBER, 4, 9, 9).rows == []
    producers.end(NUMBER, Marker(9, 0, True, 2))
    assert stable(shard) == (5, 5)


@pytest.mark.parametrize(
    ("marker", "version", "error"),
    [
        pytest.param(Marker(7, 2, True, 2), 1, 47, id="an epoch before"),
        pytest.param(Marker(7, 3, True, 2), 2, 47, id="late, of the one before"),
        pytest.param(Marker(7, 4, True, 2), 2, 0, id="the epoch after"),
        pytest.param(Marker(7, 3, True, 1), 1, 52, id="an earlier coordinator"),
        pytest.param(Marker(7, 3, True, 3), 1, 0, id="a later coordinator"),
    ],
)
def test_epochs_decide_which_markers_count(
    shard: Shard, producers: Producers, marker: Marker, version: int, error: int
) -> None:
    producers.write([b"a"], PRODUCER)
    producers.end(NUMBER, COMMIT)
    producers.write([b"b"], PRODUCER, 1)
    assert producers.end(NUMBER, marker, version).outcome(shard) == error
    assert stable(shard) == ((4, 4) if error == 0 else (2, 3))


def test_a_marker_of_a_later_epoch_fences_batches_of_earlier_ones(
    shard: Shard, producers: Producers
) -> None:
    producers.write([b"a"], PRODUCER)
    producers.end(NUMBER, Marker(7, 4, False, 2), 2)
    late = transactional_batch(b"late", producer=PRODUCER, sequence=1)
    [(error, _)] = producers.send(transactional_request({"one": {0: late}}))
    assert error == ErrorCode.INVALID_PRODUCER_EPOCH
    unordered = transactional_batch(b"x", producer=(7, 4), sequence=1)
    [(error, _)] = producers.send(transactional_request({"one": {0: unordered}}))
    assert error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.write([b"next"], (7, 4)) == 2
    assert stable(shard) == (2, 3)


def test_a_partition_that_is_gone_has_nothing_to_end(shard: Shard) -> None:
    ending = end_transaction(shard, 99, COMMIT, 1, NOW)
    assert ending.outcome(shard) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_marker_is_answered_when_it_is_durable(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("one", configs={"smq.durability": "disk"}))
    log, producers = shard.logs[0], Producers(shard)
    producers.write([b"a"], PRODUCER)
    held = log.syncs.syncer = HeldSyncer(log.memory)
    assert producers.end(NUMBER, COMMIT).outcome(shard) is None
    again = producers.end(NUMBER, COMMIT)
    assert again.outcome(shard) is None, "the first one may still be lost"
    held.release()
    producers.end_turn()
    assert again.outcome(shard) == ErrorCode.NONE


def test_a_log_without_space_takes_markers(shard: Shard, producers: Producers) -> None:
    producers.write([b"a"], PRODUCER)
    shard.logs[0].words[WORD_SPACE_END] = shard.logs[0].tail
    assert producers.end(NUMBER, COMMIT).outcome(shard) == ErrorCode.NONE
    assert stable(shard) == (2, 2)


def test_a_log_that_cannot_be_written_takes_none(shard: Shard, producers: Producers) -> None:
    producers.write([b"a"], PRODUCER)
    led = shard.by_number(NUMBER)
    assert led is not None
    led.log.partitions.table[led.slot, P_FLAGS] |= 4
    ending = end_transaction(shard, NUMBER, COMMIT, 1, NOW)
    assert ending.outcome(shard) == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(("epoch", "aborts"), [(4, False), (5, True), (6, True)])
def test_a_commit_is_of_the_transaction_before_its_epoch_and_aborts_an_earlier_one(
    shard: Shard, producers: Producers, epoch: int, aborts: bool
) -> None:
    """A power loss may have taken an abort's marker, and the records of the next transaction."""
    producers.write([b"a"], PRODUCER)
    marker = COMMIT._replace(producer_epoch=epoch)
    assert producers.end(NUMBER, marker, version=2).outcome(shard) == ErrorCode.NONE
    assert stable(shard) == (2, 2)
    found = shard.logs[0].transactions.aborted_in(NUMBER, 0, 9, 9).rows
    assert found == ([(NUMBER, *PRODUCER, 0, 1)] if aborts else [])


def lose_from(log: Log, position: int) -> None:
    """What a power loss does to frames that were not synced."""
    segment = log.wal.find(position)
    assert segment is not None
    data = bytearray(segment.path.read_bytes())
    data[position - segment.start :] = bytes(len(data) - (position - segment.start))
    segment.path.write_bytes(data)


def test_a_marker_that_a_checkpoint_in_pieces_has_seen_and_the_log_has_lost_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 20: a committed transaction was aborted, since its marker seemed to be late."""
    monkeypatch.setattr("smq.log.producers.ROWS_AT_ONCE", 1)
    disk = topic("one", configs={"smq.durability": "disk"})
    shard = new_shard(tmp_path, disk)
    producers, log = Producers(shard), shard.logs[0]
    producers.write([b"another's"], (6, 0))
    producers.write([b"a"], PRODUCER)
    snapshot = log.freeing.snapshot()  # Of this moment, but for rows that are copied later.
    end = log.tail
    marker = Marker(7, 4, committed=True, coordinator_epoch=2)
    producers.end(NUMBER, marker, version=2)
    snapshot.save_now(OsDisk(), log.directory)
    lose_from(log, end)

    log = new_log(tmp_path, generation=1)
    shard = Shard(1, Config(), {0: log}, lambda _: NODES, SECRET)
    shard.take_catalog(catalog(disk), 1)
    row = producer_row(log.producers.table, NUMBER, 7)
    assert (int(log.producers.table[row, R_EPOCH]), stable(shard)) == (4, (0, 2))
    producers = Producers(shard)
    assert producers.end(NUMBER, marker, version=2).outcome(shard) == ErrorCode.NONE
    assert log.transactions.open_of(NUMBER, 7) is None
    assert log.transactions.aborted_in(NUMBER, 0, 9, 9).rows == []


def test_an_open_transaction_is_aborted_though_the_producers_row_is_newer(
    shard: Shard, producers: Producers
) -> None:
    """Data fault 20, its kind: a row that is newer than the transaction hides nothing."""
    producers.write([b"a"], PRODUCER)
    led = shard.by_number(NUMBER)
    assert led is not None
    table = led.log.producers.table
    fence_producer(table, NUMBER, 7, 9, 2, NOW_MS)
    table[producer_row(table, NUMBER, 7), R_OPEN] = 1
    [opened] = led.log.transactions.opened()
    assert abort_open(shard, led, opened, NOW)
    row = producer_row(table, NUMBER, 7)
    assert (int(table[row, R_EPOCH]), int(table[row, R_OPEN])) == (9, 0)
