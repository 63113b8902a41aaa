"""A checkpoint in the making: the state of a log at one moment, taken in short steps.

    the loop      words, partitions (one copy)   rows of producers, a piece      the next piece …
    background                                   put in order, filed             …   encoded, saved

The loop serves clients between pieces. Batches appended meanwhile lie above the partitions' ends at
the beginning, and are left out.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from shm.kernels.base.words import WORD_GENERATION, WORD_SYNCED, WORD_TAIL
from shm.segment import LogMemory
from smq.log.adoption import Adoptions
from smq.log.files.background import Background, JobLane
from smq.log.files.checkpoint import Checkpoint
from smq.log.files.disk import Disk
from smq.log.partitions import Partitions
from smq.log.producers import Producers
from smq.log.transactions import LogTransactions


class LogSnapshot:
    """The state of a log when this object was made; `save` may be called once."""

    def __init__(
        self,
        memory: LogMemory,
        partitions: Partitions,
        producers: Producers,
        transactions: LogTransactions,
        adoptions: Adoptions,
    ) -> None:
        words = memory.words
        self.position: int = words[WORD_TAIL]
        self.synced: int = words[WORD_SYNCED]
        self.generation: int = words[WORD_GENERATION]
        assert self.synced <= self.position
        self._partitions = partitions.copy()
        self._producers = producers.copy()
        self._transactions = transactions.copy()
        self._adoptions = adoptions.copy()
        self._ends: tuple[np.ndarray, np.ndarray] | None = None

    def save(
        self,
        background: Background,
        disk: Disk,
        directory: Path,
        done: Callable[[OSError | None], None],
    ) -> None:
        """Write it to the log's directory in the background."""
        piece = self._producers.take()

        def go_on(failure: OSError | None) -> None:
            assert failure is None  # It is all in memory.
            self.save(background, disk, directory, done)

        if self._producers.is_whole:
            background.submit(JobLane.TABLES, lambda: self._end(piece, disk, directory), done)
        else:
            background.submit(JobLane.TABLES, lambda: self._file(piece), go_on)

    def save_now(self, disk: Disk, directory: Path) -> None:
        """Write it at once, for a log that is no longer served. Raises OSError."""
        while not self._producers.is_whole:
            self._file(self._producers.take())
        self._end(self._producers.take(), disk, directory)

    def _file(self, piece: np.ndarray) -> None:
        if self._ends is None:
            self._ends = self._partitions.ends()
        self._producers.file(piece, *self._ends)

    def _end(self, piece: np.ndarray, disk: Disk, directory: Path) -> None:
        self._file(piece)
        states, filed = self._partitions.states(), self._producers.filed
        where = self.position, self.synced, self.generation
        checkpoint = Checkpoint(*where, states, filed, self._transactions, self._adoptions)
        checkpoint.save(disk, directory)
