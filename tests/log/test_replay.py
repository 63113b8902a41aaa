"""What a start enters of the frames that it has scanned. test_recovery.py has whole starts."""

from pathlib import Path

import numpy as np

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.words import P_LOG_END, P_SEALED_END, WORD_INDEX_TAIL
from shm.kernels.log.recover import S_AT, SCAN_COLUMNS, scan_frames
from smq.log.log import Log
from smq.log.replay import Replay
from smq.log.start_rows import StartRows
from tests.log.logs import NOW_MS, OS, append, batch, row, start, turn

NUMBERS = (1, 2)


class Scanned:
    """A log of two partitions, with three batches each in turn, as a start scans it."""

    def __init__(self, directory: Path) -> None:
        log = start(directory / "scanned", levels=dict.fromkeys(NUMBERS, OS)).log
        for i in range(3):
            for number in NUMBERS:
                data = batch(b"%d" % i, producer_id=5, epoch=0, sequence=i)
                append(log, number, data)
        assert turn(log)
        [path] = [each for each in (directory / "scanned").glob("*.wal") if int(each.stem) == 0]
        self.data = np.frombuffer(path.read_bytes(), np.uint8)
        self.rows = np.zeros((64, SCAN_COLUMNS), np.int64)
        self.count, _, _ = scan_frames(
            self.data, 0, len(self.data), 0, 0, self.rows, new_sums(len(self.data))
        )

    def enter(self, log: Log, known_to: int = 0) -> Replay:
        replay = Replay(StartRows(log, None), self.rows, NOW_MS)
        replay.enter(self.data, (0, int(self.count)), 0, known_to)
        return replay


def fresh(directory: Path) -> Log:
    log = start(directory / "fresh").log
    log.drop_partitions([1])
    return log


def test_batches_move_ends_and_are_found_in_the_index(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    replay = Scanned(tmp_path).enter(log)
    assert {number: row(log, number)[P_LOG_END] for number in NUMBERS} == {1: 3, 2: 3}
    assert replay.first_offsets == {1: 0, 2: 0}
    assert sum(map(len, replay.entries)) == log.words[WORD_INDEX_TAIL] == 6
    assert log.producers.newest(1, 5) == 2


def test_batches_of_a_partition_that_the_checkpoint_does_not_know_are_of_a_deleted_topic(
    tmp_path: Path,
) -> None:
    log, scanned = fresh(tmp_path), Scanned(tmp_path)
    scanned.enter(log, known_to=len(scanned.data))
    assert not log.partitions.slots
    assert log.words[WORD_INDEX_TAIL] == 0


def test_sealed_batches_are_passed_over(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    log.partitions.table[log.partitions.slot_of(1), P_SEALED_END] = 2
    Scanned(tmp_path).enter(log)
    [entry] = log.lookup.entries(0, log.words[WORD_INDEX_TAIL])["base_offset"][[0]].tolist()
    assert log.words[WORD_INDEX_TAIL] == 4
    assert entry == 0, "of the other partition"


def test_producers_and_epochs_are_noted_where_the_checkpoint_ends(tmp_path: Path) -> None:
    log, scanned = fresh(tmp_path), Scanned(tmp_path)
    for number in NUMBERS:
        log.partitions.slot_of(number)
    scanned.enter(log, known_to=int(scanned.rows[4, S_AT]))
    assert log.producers.newest(1, 5) == 2
    assert log.partitions.epochs == {1: [(0, 0)], 2: [(0, 0)]}
