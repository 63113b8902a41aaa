"""How a partition comes from the log of another shard: what that knows of it becomes frames here.

    source, closed    StateExport                   pages: row, producers, open and aborted ones
    target            Adoptions.write               frames of FRAME_KIND_ADOPTION, then a sync
                      Adoptions.pending             … until it is known whether this log leads
                      Adoptions.apply               replaces all that the log knew of the partition

A start finds what is pending in checkpoint and frames. It applies it at the first batch that it
finds of that leadership; the shard does where there is none, once the catalog says who leads.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from shm.kernels.base.words import (
    P_COMPACTED_END,
    P_DECIDED_END,
    P_LOG_END,
    P_LOG_START,
    P_MAX_TIMESTAMP,
    P_SEALED_END,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
    WORD_LOG,
    WORD_RING_BYTES,
    WORD_SEGMENT_BYTES,
    WORD_SPACE_END,
    WORD_TAIL,
)
from shm.kernels.log.append import append_adoption
from shm.kernels.log.producers import PRODUCER_COLUMNS, file_producers
from shm.segment import LogMemory
from smq.log.files.adopted import (
    PAGE_ABORTED,
    PAGE_HEAD_WORDS,
    PAGE_OPEN,
    PAGE_PRODUCERS,
    PAGE_ROW,
    PLACES,
    AdoptedRow,
    Adoption,
    AdoptionPart,
    content_of,
    judge_page,
    page_of,
)
from smq.log.files.bounds import INT32
from smq.log.files.checkpoint import Open, TransactionsCopy
from smq.log.partitions import Partitions
from smq.log.producers import ROWS_AT_ONCE, Producers
from smq.log.transactions import LogTransactions
from smq.model.errors import StoreError

PAGE_BYTES = 128 * 1024  # Encoded, sent, checked and written well below a millisecond.
_HEADS_BYTES = 128  # Of frame, part and page.
_ROW_COLUMNS = (
    P_LOG_START,
    P_SEALED_END,
    P_DECIDED_END,
    P_COMPACTED_END,
    P_MAX_TIMESTAMP,
    P_UNSEALED_BYTES,
    P_UNSEALED_SINCE_MS,
)


class StateExport:
    """What a log knows of a partition that it has closed, in pages. The row is of the beginning.

    A log has many producers: call step() until it has looked at all.
    """

    def __init__(
        self,
        words: memoryview,
        partitions: Partitions,
        producers: Producers,
        transactions: LogTransactions,
        number: int,
    ) -> None:
        # Two such frames fit whatever is left of ring and segment.
        bytes_max = min(int(words[WORD_SEGMENT_BYTES]), int(words[WORD_RING_BYTES])) // 2
        self._bytes_max = min(PAGE_BYTES, bytes_max - _HEADS_BYTES)
        self._producers, self._next, self._number = producers, 1, number
        self._row = partitions.table[partitions.slots[number]].copy()
        self._open = np.array(transactions.open_in(number), np.int64).reshape(-1, len(Open._fields))
        self._aborted = transactions.aborted_rows(number)
        self._found: list[np.ndarray] = []
        self._pages: list[np.ndarray] = []

    @property
    def end(self) -> int:
        """The offset at which the next leadership begins."""
        return int(self._row[P_LOG_END])

    def step(self) -> bool:
        """Look at some producers; True: it was all."""
        table, end = self._producers.table, self._producers.end
        if self._next < end:
            piece = table[self._next : min(end, self._next + ROWS_AT_ONCE)].copy()
            self._next += len(piece)
            found = np.empty((len(piece), PRODUCER_COLUMNS), np.int64)
            only = np.array([self._number], np.int64), np.array([self.end], np.int64)
            self._found.append(found[: int(file_producers(piece, *only, found))].copy())
        if self._next >= end and not self._pages:
            self._cut()
        return bool(self._pages)

    @property
    def page_count(self) -> int:
        """How many pages there are, once step() was True."""
        assert self._pages
        return len(self._pages)

    def page(self, i: int) -> bytes:
        """A page, once step() was True."""
        return self._pages[i].tobytes()

    def _cut(self) -> None:
        found = np.concatenate([np.zeros((0, PRODUCER_COLUMNS), np.int64), *self._found])
        counts = len(found), len(self._open), len(self._aborted)
        row = AdoptedRow._make([*self._row[[*_ROW_COLUMNS]].tolist(), *counts])
        self._pages.append(page_of(PAGE_ROW, np.array([row], np.int64)))
        rows_of = {PAGE_PRODUCERS: found, PAGE_OPEN: self._open, PAGE_ABORTED: self._aborted}
        for kind, rows in rows_of.items():
            at_once = self._bytes_max // (8 * rows.shape[1])
            for first in range(0, len(rows), at_once):
                self._pages.append(page_of(kind, rows[first : first + at_once]))
        self._found = []


class Adoptions:
    """The adoptions that a log has written or is writing, and which are not applied.

    Invariants: those that are pending are whole; those that are coming are not, and have the parts
    up to some one.
    """

    def __init__(
        self,
        memory: LogMemory,
        partitions: Partitions,
        producers: Producers,
        transactions: LogTransactions,
    ) -> None:
        self._memory, self._words = memory, memory.words
        self._partitions, self._producers = partitions, producers
        self._transactions = transactions
        self._pending: dict[int, Adoption] = {}
        self._coming: dict[int, Adoption] = {}

    def invariants(self) -> None:
        """Raise AssertionError when one is not as the class says."""
        assert all(each.is_whole for each in self._pending.values())
        assert not any(each.is_whole for each in self._coming.values())
        for number, each in [*self._pending.items(), *self._coming.items()]:
            assert each.number == number
            assert each.position <= self._words[WORD_TAIL]

    def pending(self, number: int) -> Adoption | None:
        """The newest whole one of a partition that is not applied."""
        return self._pending.get(number)

    def numbers(self) -> set[int]:
        """The partitions with pending ones."""
        return set(self._pending)

    def fits(self, first_page: bytes) -> bool:
        """Whether the log has room for the producers that a first page says will come. Raises
        ValueError."""
        page = _page_of(first_page)
        if page[0] != PAGE_ROW:
            raise ValueError("not the first page")
        row = AdoptedRow._make(page[PAGE_HEAD_WORDS:].tolist())
        return row.producer_count <= self._producers.room

    # --- writing ---------------------------------------------------------------------------------

    def write(self, part: AdoptionPart, page: bytes) -> bool:
        """Append the frame of a part; the parts of an adoption come in order. False: write the log
        first. Raises ValueError for a page that no log makes, StoreError if there is no space.

        The adoption is pending with its last part, and kept by a start once the log is synced up to
        its `position`.
        """
        words = _page_of(page)
        content = content_of(part, words)
        size = len(content) + _HEADS_BYTES
        if size > min(self._words[WORD_SEGMENT_BYTES], self._words[WORD_RING_BYTES]):
            raise ValueError("a page that is longer than a segment")
        if self._words[WORD_TAIL] + size > self._words[WORD_SPACE_END]:
            log = f"log {self._words[WORD_LOG]}"
            raise StoreError(log, "it has no space for the state of a partition")
        if append_adoption(self._memory.memory, part.number, content) < 0:
            return False
        self.meet(part, words, int(self._words[WORD_TAIL]))
        return True

    def meet(self, part: AdoptionPart, page: np.ndarray, position: int) -> None:
        """A frame with a part ends at a position. Raises ValueError for what is no adoption; a part
        that follows none is left."""
        if part.part == 0:
            which = part.number, part.epoch, part.attempt, part.start, part.part_count
            self._coming[part.number] = Adoption(*which)
        coming = self._coming.get(part.number)
        if coming is None or (coming.epoch, coming.attempt) != (part.epoch, part.attempt):
            return
        if len(coming.pages) != part.part:
            del self._coming[part.number]
            return
        coming.pages.append(page)
        coming.position = position
        if coming.is_whole:
            del self._coming[part.number]
            coming.judge(PLACES, INT32)
            self._pending[part.number] = coming

    # --- applying --------------------------------------------------------------------------------

    def apply(self, number: int) -> None:
        """The pending adoption is the partition's state from now on: nothing is left of what the
        log knew of it but where its batches are. Its end is the adoption's start."""
        adoption = self._pending.pop(number)
        self._producers.forget_now(number)
        self._transactions.drop(number)
        self._partitions.begin_at(number, adoption.epoch, adoption.start, adoption.row)
        self._producers.restore(adoption.rows_of(PAGE_PRODUCERS))
        opened = [Open._make(row) for row in adoption.rows_of(PAGE_OPEN).tolist()]
        aborted = adoption.rows_of(PAGE_ABORTED)
        self._transactions.restore(TransactionsCopy(opened, [aborted]))

    def drop(self, number: int) -> None:
        """Whatever is pending of a partition is of no use: the move was given up, or it is gone."""
        self._pending.pop(number, None)
        self._coming.pop(number, None)

    # --- checkpoints -----------------------------------------------------------------------------

    def copy(self) -> list[Adoption]:
        """The checkpoint's data, as of now."""
        found = [*self._pending.values(), *self._coming.values()]
        return [replace(each, pages=list(each.pages)) for each in found]

    def restore(self, kept: Iterable[Adoption]) -> None:
        """Restore them from a checkpoint."""
        for each in kept:
            where = self._pending if each.is_whole else self._coming
            where[each.number] = each


def _page_of(data: bytes) -> np.ndarray:
    """A page that was sent. Raises ValueError."""
    page = np.frombuffer(data, np.int64)
    judge_page(page)
    return page
