"""Enters scanned frames into a log at a start: index, ends, leader epochs, producers, transactions.

The checkpoint knows what producers and transactions did below its position. The index and the ends
of partitions come from the frames themselves.
"""

import numpy as np

from shm.kernels.base.words import (
    BATCH_LAST_OFFSET_DELTA_AT,
    DURABILITY_DISK,
    FRAME_HEADER_BYTES,
    FRAME_KIND_BATCH,
    FRAME_KIND_PADDING,
    P_SEALED_END,
    WORD_INDEX_TAIL,
)
from shm.kernels.log.recover import (
    S_AT,
    S_BASE_OFFSET,
    S_EPOCH,
    S_KIND,
    S_LEVEL,
    S_PARTITION,
    replay_frames,
)
from smq.log.adoption_replay import AdoptionReplay
from smq.log.start_rows import StartRows
from smq.log.transaction_replay import replay_transactions


class Replay:
    """What a start enters into its log.

    rows            int64 [n, 9], the S_ columns of the frames that were scanned last
    first_offsets   by partition, of the first batch that was found
    entries         of the index, those of the segment being scanned
    """

    def __init__(self, start_rows: StartRows, rows: np.ndarray, now_ms: int) -> None:
        self._start_rows, self._log = start_rows, start_rows.log
        self._rows, self._now_ms = rows, now_ms
        self._adopted = AdoptionReplay(start_rows)
        self.first_offsets: dict[int, int] = {}
        self.entries: list[np.ndarray] = []

    def enter(
        self, data: np.ndarray, which: tuple[int, int], first_position: int, known_to: int
    ) -> None:
        """Enter the frames of these rows, [first, end). `first_position` is that of data[0];
        the checkpoint knows what lies below position `known_to`."""
        first, end = which
        while first < end:
            place = first_position, known_to
            stop = first + self._adopted.next_turn(self._rows[first:end], *place)
            if first < stop:
                self._enter(data, (first, stop), *place)
            if stop < end:
                stop += self._adopted.take(data, self._rows[stop], first_position)
            first = stop

    def _enter(
        self, data: np.ndarray, which: tuple[int, int], first_position: int, known_to: int
    ) -> None:
        log, rows = self._log, self._rows[slice(*which)]
        batches = rows[rows[:, S_KIND] == FRAME_KIND_BATCH]
        log.filing.has_disk_frames |= bool((batches[:, S_LEVEL] == DURABILITY_DISK).any())
        slots = self._note(rows, first_position, known_to)
        self._pass_over_sealed(data, rows, slots)
        before = log.words[WORD_INDEX_TAIL]
        place = np.array([*which, first_position, known_to, self._now_ms], np.int64)
        tables = log.memory.memory, log.links, log.producers.table
        replay_frames(*tables, data, self._rows, slots, place)
        count = ((slots >= 0) & (rows[:, S_KIND] == FRAME_KIND_BATCH)).sum()
        assert log.words[WORD_INDEX_TAIL] - before == count, "without an entry, nobody finds it"
        self.entries.append(log.lookup.entries(before, log.words[WORD_INDEX_TAIL]))
        replay_transactions(log, data, rows, first_position, (known_to, self._now_ms))

    def _note(self, rows: np.ndarray, first_position: int, known_to: int) -> np.ndarray:
        """Record partitions' first offsets and epochs; returns the slot of each frame, -1: it is no
        batch, or its topic was deleted."""
        log, slots = self._log, np.full(len(rows), -1, np.int64)
        ours = np.flatnonzero(rows[:, S_KIND] == FRAME_KIND_BATCH)
        ours = ours[np.argsort(rows[ours, S_PARTITION], kind="stable")]
        batches = rows[ours]
        numbers, epochs = batches[:, S_PARTITION], batches[:, S_EPOCH]
        is_last = np.append(numbers[1:] != numbers[:-1], np.ones(len(numbers[:1]), np.bool_))
        met = batches[is_last][:, [S_PARTITION, S_AT]].tolist()
        for number, at in met:
            if first_position + at >= known_to:
                self._start_rows.give(number)
        # Afterwards: those that do not exist lose their rows when others need them.
        found = [log.partitions.slots.get(number, -1) for number, _ in met]
        slots[ours] = np.repeat(found, np.diff(np.flatnonzero(is_last), prepend=-1))
        changes = np.append(np.ones(len(numbers[:1]), np.bool_), epochs[1:] != epochs[:-1])
        changes[1:] |= is_last[:-1]
        columns = [S_PARTITION, S_EPOCH, S_BASE_OFFSET]
        for row, slot in zip(
            batches[changes][:, columns].tolist(), slots[ours][changes].tolist(), strict=True
        ):
            number, epoch, offset = row
            if slot >= 0:
                self.first_offsets.setdefault(number, offset)
                history = log.partitions.epochs[number]
                if log.partitions.is_tail(number):
                    continue  # Its history is its leader's.
                if not history or epoch > history[-1][0]:  # Drop epochs whose records were lost.
                    log.partitions.note_epoch(number, epoch, offset)
        return slots

    def _pass_over_sealed(self, data: np.ndarray, rows: np.ndarray, slots: np.ndarray) -> None:
        """Skip sealed frames: after a freed segment they would seem to follow it."""
        sealed_ends = self._log.partitions.table[:, P_SEALED_END]
        ours = np.flatnonzero(slots >= 0)
        at = rows[ours, S_AT] + FRAME_HEADER_BYTES + BATCH_LAST_OFFSET_DELTA_AT
        deltas = data[at[:, None] + np.arange(4)].view(">i4")[:, 0]
        ends = rows[ours, S_BASE_OFFSET] + deltas + 1
        sealed = ends <= sealed_ends[slots[ours]]
        rows[ours[sealed], S_KIND] = FRAME_KIND_PADDING
