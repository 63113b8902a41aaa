"""Checkpoints in the making: short steps, between which the log goes on."""

from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.log.producers import (
    PRODUCER_COLUMNS,
    R_PARTITION,
    R_PRODUCER_ID,
    restore_producers,
)
from smq.log.files.background import InlineBackground, JobLane
from smq.log.files.checkpoint import FILE_NAME, Checkpoint
from smq.log.log import Log
from smq.log.producers import ROWS_AT_ONCE
from tests.log.logs import append, batch, start, turn

Job = tuple[Callable[[], object], Callable[..., None]]


class SteppedBackground(InlineBackground):
    """Runs a job of tables when it is told to."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()

    def submit(self, lane: JobLane, job: Callable[[], object], done: Callable[..., None]) -> None:
        """See Background."""
        if lane is JobLane.TABLES:
            self.jobs.append((job, done))
        else:
            super().submit(lane, job, done)

    def step(self) -> None:
        """Run the oldest."""
        job, done = self.jobs.popleft()
        super().submit(JobLane.TABLES, job, done)

    def wait(self) -> None:
        """See Background."""
        while self.jobs:
            self.step()


def started(directory: Path) -> tuple[Log, SteppedBackground]:
    background = SteppedBackground()
    log = start(directory, background=background).log
    background.wait()
    return log, background


def know(log: Log, count: int) -> None:
    """Have so many producers in the table, who have appended at offset 0."""
    rows = np.zeros((count, PRODUCER_COLUMNS), np.int64)
    rows[:, R_PARTITION], rows[:, R_PRODUCER_ID] = 1, np.arange(1000, 1000 + count)
    rows[:, 3] = 1
    restore_producers(log.producers.table, rows)


def produce(log: Log, producer_id: int, sequence: int) -> int:
    offset = append(log, 1, batch(b"v", producer_id=producer_id, epoch=0, sequence=sequence))
    turn(log)
    return offset


def loaded(directory: Path) -> Checkpoint:
    checkpoint, _ = Checkpoint.load(directory)
    assert checkpoint is not None
    return checkpoint


def test_a_small_table_is_one_job(tmp_path: Path) -> None:
    log, background = started(tmp_path)
    produce(log, 5, 0)
    log.checkpoint()
    assert len(background.jobs) == 1
    background.step()
    assert not background.jobs
    assert loaded(tmp_path).producers[:, R_PRODUCER_ID].tolist() == [5]


def test_100_000_producers_are_copied_in_steps_between_which_the_log_serves(
    tmp_path: Path,
) -> None:
    log, background = started(tmp_path)
    produce(log, 5, 0)
    produce(log, 6, 0)
    know(log, 100_000)
    position, durable, steps = log.tail, [], 0
    log.checkpoint(lambda: durable.append(True))
    for sequence in range(1, 10):
        produce(log, 6, sequence)  # Its row was copied; that of 7 was not.
        produce(log, 7, sequence - 1)
    while background.jobs:
        assert len(background.jobs) == 1
        assert not durable
        background.step()
        steps += 1
    assert durable == [True]
    assert steps == -(-100_002 // ROWS_AT_ONCE)
    checkpoint = loaded(tmp_path)
    assert checkpoint.position == position
    assert checkpoint.partitions[0].log_end == 2
    ids = checkpoint.producers[:, R_PRODUCER_ID]
    assert sorted(ids.tolist()) == [5, 6, *range(1000, 101_000)]
    assert (checkpoint.producers[:, 6 + 2] < 2).all()
    log.wal.close()  # It dies.
    again = start(tmp_path, generation=1).log
    assert produce(again, 6, 9) == 18  # As when it was new.
    assert produce(again, 7, 8) == 19
    assert produce(again, 5, 1) == 20
    assert produce(again, 100_999, 1) == 21


def test_a_checkpoint_that_fails_is_made_again(tmp_path: Path) -> None:
    log, background = started(tmp_path)
    know(log, 2 * ROWS_AT_ONCE)
    durable: list[bool] = []
    (tmp_path / (FILE_NAME + ".new")).mkdir()  # Nothing can be written there.
    log.checkpoint(lambda: durable.append(True))
    background.wait()
    assert not durable
    (tmp_path / (FILE_NAME + ".new")).rmdir()
    log.tend()
    background.wait()
    assert durable == [True]
    assert not len(loaded(tmp_path).producers)  # The partition ends at 0: they know too much.


@pytest.mark.parametrize("count", [0, 3, 10_000])
def test_a_log_that_is_closed_remembers_all(tmp_path: Path, count: int) -> None:
    log, _ = started(tmp_path)
    produce(log, 5, 0)
    know(log, count)
    log.close()
    assert len(loaded(tmp_path).producers) == count + 1
