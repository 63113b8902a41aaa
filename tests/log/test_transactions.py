"""Open and aborted transactions of a log: its rows, and their recovery."""

import shutil
from pathlib import Path

import pytest

from shm.kernels.base.words import P_ABORTED_END, P_LAST_STABLE, P_OPEN_FROM
from smq.log.files.checkpoint import FILE_NAME, Aborted, Open
from smq.log.log import Log
from smq.shard.shard import Shard
from smq.wire.markers import Marker
from tests.shard.shard_bench import NOW_MS, HeldSyncer, batch, new_log, new_shard, topic
from tests.shard.transactional_bench import Producers

A, B = (7, 0), (8, 4)
NUMBER = 1


def commit(producer: tuple[int, int]) -> Marker:
    return Marker(*producer, committed=True, coordinator_epoch=1)


def abort(producer: tuple[int, int]) -> Marker:
    return Marker(*producer, committed=False, coordinator_epoch=1)


def facts(log: Log) -> tuple[list[Open], list[Aborted], int, int]:
    """What is open, what was aborted, and what the partition's row says of both."""
    kept = log.transactions.copy()
    row = log.partitions.table[log.partitions.slots[NUMBER]]
    opened = [each._replace(since_ms=0) for each in kept.open]
    aborted = [Aborted._make(each) for rows in kept.aborted for each in rows.tolist()]
    return opened, aborted, int(row[P_OPEN_FROM]), int(row[P_ABORTED_END])


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return new_shard(tmp_path / "log", topic("one"))


def play(shard: Shard) -> Producers:
    """A aborts [0, 1] with its marker at 3 and is open from 4 on; B is open from 2 on."""
    producers = Producers(shard)
    producers.write([b"a", b"b"], A)
    producers.write([b"x"], B)
    producers.end(NUMBER, abort(A))
    producers.write([b"c"], A, 2)
    return producers


PLAYED = ([Open(NUMBER, *B, 2, 0), Open(NUMBER, *A, 4, 0)], [Aborted(NUMBER, *A, 0, 3)], 3, 4)


def test_the_oldest_open_transaction_bounds_what_is_stable(shard: Shard) -> None:
    producers = play(shard)
    assert facts(shard.logs[0]) == PLAYED
    led = shard.by_number(NUMBER)
    assert led is not None
    assert led.offsets().last_stable == 2
    producers.end(NUMBER, commit(B))
    assert led.offsets().last_stable == 4
    producers.end(NUMBER, commit(A))
    assert led.offsets().last_stable == led.offsets().high_watermark == 7


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_start_restores_what_is_open_and_what_was_aborted(
    shard: Shard, tmp_path: Path, *, clean: bool, checkpoint: bool
) -> None:
    play(shard)
    log = shard.logs[0]
    if clean:
        log.close()
    elif checkpoint:
        log.checkpoint()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "log", copy)
    if not checkpoint:
        (copy / "0" / FILE_NAME).unlink(missing_ok=True)
    again = new_log(copy, generation=1)
    again.invariants()
    assert facts(again) == PLAYED
    assert again.partitions.table[again.partitions.slots[NUMBER], P_LAST_STABLE] == 2


@pytest.mark.parametrize("kept", range(1, 5))
def test_a_log_that_was_cut_has_the_transactions_of_what_is_left(tmp_path: Path, kept: int) -> None:
    """Frames behind the first `kept` ones are lost, with and without a checkpoint that had them."""
    found = []
    for checkpoint in (True, False):
        shard = new_shard(tmp_path / str(checkpoint), topic("one"))
        log = shard.logs[0]
        log.syncs.syncer = HeldSyncer(log.memory)  # What was synced is not cut.
        producers = play(shard)
        producers.end(NUMBER, commit(B))
        if checkpoint:
            log.checkpoint()
        end = int(log.memory.column("position")[kept])
        copy = tmp_path / f"copy of {checkpoint}"
        shutil.copytree(tmp_path / str(checkpoint), copy)
        path = min((copy / "0").glob("*.wal"))
        with path.open("r+b") as file:
            file.seek(end)
            file.write(bytes(path.stat().st_size - end))
        again = new_log(copy, generation=1)
        again.invariants()
        found.append(facts(again))
    with_checkpoint, without = found
    # The checkpoint has no transaction of B any more: it was committed, and stays so.
    assert with_checkpoint[0] == [each for each in without[0] if each.producer_id != B[0]]
    assert with_checkpoint[1] == without[1]


def test_aborted_transactions_are_forgotten_when_the_log_has_lost_their_records(
    shard: Shard,
) -> None:
    play(shard)
    log = shard.logs[0]
    log.sealing.advance(NUMBER, 2, NOW_MS)
    assert facts(log)[1] == PLAYED[1], "the window still has its records"
    log.transactions.forget(NUMBER, 3)
    assert facts(log)[1] == PLAYED[1]
    log.transactions.forget(NUMBER, 4)
    assert facts(log)[1:] == ([], 3, 0)
    log.invariants()


def test_a_first_offset_stays_that_of_a_batch_when_records_are_deleted(
    shard: Shard, tmp_path: Path
) -> None:
    """Clients compare it with where a batch begins. It moved up to the log start, within the batch,
    and what was left of an aborted batch was shown and sealed as if it had been committed."""
    producers = Producers(shard)
    producers.write([b"a", b"b", b"c"], A)
    producers.write([b"x"], B)
    log = shard.logs[0]
    log.sealing.set_log_start(NUMBER, 1)
    log.invariants()
    opened = [Open(NUMBER, *A, 0, 0), Open(NUMBER, *B, 3, 0)]
    assert facts(log) == (opened, [], 2, 0)
    assert log.partitions.table[log.partitions.slots[NUMBER], P_LAST_STABLE] == 1
    log.checkpoint()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "log", copy)
    again = new_log(copy, generation=1)
    again.invariants()
    assert facts(again) == facts(log)
    producers.end(NUMBER, abort(A))
    assert facts(log) == (opened[1:], [Aborted(NUMBER, *A, 0, 4)], 4, 5)


def test_a_partition_that_is_gone_takes_its_transactions_along(shard: Shard) -> None:
    play(shard)
    log = shard.logs[0]
    log.drop_partitions([NUMBER])
    assert log.transactions.copy() == ([], [])
    log.invariants()


def test_an_ordinary_batch_opens_nothing(shard: Shard) -> None:
    Producers(shard).append("one", 0, batch(b"x"))
    assert facts(shard.logs[0]) == ([], [], 0, 0)


def test_a_retry_is_recognized_after_a_start_behind_older_markers(
    shard: Shard, tmp_path: Path
) -> None:
    """Each end bumps the epoch (KIP-890): the batch of the last epoch is behind older markers."""
    producers = Producers(shard)
    for epoch in range(3):
        producers.write([b"a"], (7, epoch))
        producers.end(NUMBER, abort((7, epoch + 1)), version=2)
    offset = producers.write([b"last"], (7, 3))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "log", copy)
    (copy / "0" / FILE_NAME).unlink(missing_ok=True)
    again = new_shard(copy, topic("one"))
    assert Producers(again).write([b"last"], (7, 3)) == offset
