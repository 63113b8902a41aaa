"""The partitions of a log: their rows in the partition table by number, their leader epochs."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.segment import LogMemory
from smq.log.files.adopted import AdoptedRow
from smq.log.files.checkpoint import PartitionCheckpoint

TIME_UNLIMITED = 2**62
_STATE_COLUMNS = (
    words.P_LOG_START,
    words.P_LOG_END,
    words.P_SEALED_END,
    words.P_MAX_TIMESTAMP,
    words.P_UNSEALED_BYTES,
    words.P_UNSEALED_SINCE_MS,
    words.P_COMPACTED_END,
    words.P_DECIDED_END,
    words.P_LED_FROM,
)
_SET_FLAGS = (
    3 << words.DURABILITY_SHIFT
    | words.FLAG_LOG_APPEND_TIME
    | words.FLAG_FETCH_LEFT
    | words.FLAG_LOOKED_INTO
)


def show(row: np.ndarray, end: int) -> None:
    """Make a partition visible up to `end`, and stable up to its first open transaction.

    For rows that no kernel is publishing; shm.kernels.log.visible has the same rule.
    """
    open_from = int(row[words.P_OPEN_FROM])
    row[words.P_HIGH_WATERMARK] = end
    row[words.P_LAST_STABLE] = min(end, open_from - 1) if open_from else end


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """A topic's configuration as its partitions' rows hold it; times in ms, sizes in bytes."""

    durability: int
    batch_bytes_max: int
    log_append_time: bool = False
    delivers_inline: bool = False
    looks_into: bool = False
    timestamp_before_max_ms: int = TIME_UNLIMITED
    timestamp_after_max_ms: int = TIME_UNLIMITED


class PartitionsCopy(NamedTuple):
    """The checkpoint's data of all partitions, not yet in order: cheap to take."""

    table: np.ndarray
    epochs: dict[int, list[tuple[int, int]]]

    def _rows(self) -> np.ndarray:
        used = np.flatnonzero(self.table[:, words.P_FLAGS] & words.FLAG_IN_USE)
        return used[np.argsort(self.table[used, words.P_NUMBER])]

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The partitions' numbers, sorted, and their log ends."""
        rows = self.table[self._rows()]
        return rows[:, words.P_NUMBER].copy(), rows[:, words.P_LOG_END].copy()

    def states(self) -> list[PartitionCheckpoint]:
        """By number."""
        rows = self.table[self._rows()]
        numbers = rows[:, words.P_NUMBER].tolist()
        tails = rows[:, words.P_FLAGS] & words.FLAG_TAIL != 0
        states = np.column_stack([rows[:, _STATE_COLUMNS], tails]).tolist()
        return [
            PartitionCheckpoint(number, self.epochs[number], *state)
            for number, state in zip(numbers, states, strict=True)
        ]


class Partitions:
    """Rows of the partition table by partition number.

    led   the numbers of those that this life leads, or has closed while they move

    Invariants: each number has one row, and a history of epochs that begin at growing offsets; log
    start <= HWM <= log end, compacted end <= sealed end <= HWM, and what is led begins at or below
    the log end. A tail is not led. A history is never changed, but replaced: copies of `epochs`
    share it.
    """

    def __init__(self, memory: LogMemory) -> None:
        self.table = memory.partitions
        self._words = memory.words
        self.slots: dict[int, int] = {}
        self.epochs: dict[int, list[tuple[int, int]]] = {}
        self.led: set[int] = set()
        self._free = list(range(len(self.table) - 1, -1, -1))

    def invariants(self) -> None:
        """Raise AssertionError when a row is not as the class says."""
        assert self.slots.keys() == self.epochs.keys()
        assert len(set(self.slots.values())) == len(self.slots)
        for number, slot in self.slots.items():
            row = self.table[slot]
            assert int(row[words.P_NUMBER]) == number
            assert (
                0 <= row[words.P_LOG_START] <= row[words.P_HIGH_WATERMARK] <= row[words.P_LOG_END]
            ), number
            assert (
                row[words.P_COMPACTED_END] <= row[words.P_DECIDED_END] <= row[words.P_SEALED_END]
            ), number
            assert row[words.P_SEALED_END] <= row[words.P_HIGH_WATERMARK], number
            assert row[words.P_LAST_STABLE] <= row[words.P_HIGH_WATERMARK], number
            assert 0 <= row[words.P_LED_FROM] <= row[words.P_LOG_END], number
            for before, after in pairwise(self.epochs[number]):
                assert before[0] < after[0], number
                assert before[1] < after[1], number
        assert self.led <= self.slots.keys()
        for number in self.led:
            assert not self.is_tail(number), number
            assert self.epochs[number], number

    def clear(self) -> None:
        """Forget all rows, as a shard does before it recovers."""
        self.table[: int(self._words[words.WORD_PARTITION_COUNT])] = 0

    @property
    def is_full(self) -> bool:
        """Whether each row is some partition's."""
        return not self._free

    def slot_of(self, number: int) -> int:
        """The row of a partition, a new empty one if it has none; there must be one."""
        slot = self.slots.get(number)
        if slot is None:
            assert self._free, "the coordinator gives a log no more partitions than it has rows"
            slot = self._free.pop()
            assert self.table[slot, words.P_FLAGS] == 0, "a free row is nobody's"
            row = np.zeros(words.PARTITION_COLUMNS, np.int64)
            row[words.P_NUMBER], row[words.P_FLAGS] = number, words.FLAG_IN_USE
            row[words.P_LAST_ENTRY] = row[words.P_MAX_TIMESTAMP] = -1
            self.table[slot] = row
            self.slots[number] = slot
            self.epochs[number] = []
            self._words[words.WORD_PARTITION_COUNT] = max(
                int(self._words[words.WORD_PARTITION_COUNT]), slot + 1
            )
        return slot

    def restore(self, state: PartitionCheckpoint) -> int:
        """Restore the row of a partition from a checkpoint. Its end comes from the frames."""
        slot = self.slot_of(state.number)
        row = self.table[slot]
        row[words.P_LOG_START], row[words.P_SEALED_END] = state.log_start, state.sealed_end
        row[words.P_COMPACTED_END], row[words.P_DECIDED_END] = (
            state.compacted_end,
            state.decided_end,
        )
        row[words.P_LOG_END] = max(state.log_start, state.sealed_end, state.led_from)
        row[words.P_LED_FROM] = state.led_from
        row[words.P_FLAGS] |= words.FLAG_TAIL * state.is_tail
        row[words.P_MAX_TIMESTAMP] = state.max_timestamp
        row[words.P_UNSEALED_SINCE_MS] = state.unsealed_since_ms
        self.epochs[state.number] = list(state.epochs)
        return slot

    def set_unsealed(self, number: int, unsealed_bytes: int, since_ms: int) -> None:
        """Set a partition's unsealed bytes, and since when they are unsealed."""
        row = self.table[self.slots[number]]
        row[words.P_UNSEALED_BYTES] = unsealed_bytes
        row[words.P_UNSEALED_SINCE_MS] = since_ms if unsealed_bytes else 0

    def copy(self) -> PartitionsCopy:
        """The checkpoint's data of all partitions, as of now."""
        rows = self.table[: int(self._words[words.WORD_PARTITION_COUNT])]
        return PartitionsCopy(rows.copy(), self.epochs.copy())

    def states(self) -> list[PartitionCheckpoint]:
        """The checkpoint's data of all partitions, in order."""
        return self.copy().states()

    def configure(self, number: int, settings: PartitionSettings) -> int:
        """Apply a topic's settings to a partition's row; returns its slot."""
        slot = self.slot_of(number)
        row = self.table[slot]
        flags = int(row[words.P_FLAGS]) & ~_SET_FLAGS
        flags |= words.FLAG_LOG_APPEND_TIME if settings.log_append_time else 0
        flags |= words.FLAG_FETCH_LEFT if settings.delivers_inline else 0
        flags |= words.FLAG_LOOKED_INTO if settings.looks_into else 0
        row[words.P_FLAGS] = flags | settings.durability << words.DURABILITY_SHIFT
        row[words.P_BATCH_BYTES_MAX] = settings.batch_bytes_max
        row[words.P_TIMESTAMP_BEFORE_MAX] = settings.timestamp_before_max_ms
        row[words.P_TIMESTAMP_AFTER_MAX] = settings.timestamp_after_max_ms
        return slot

    def level_of(self, slot: int) -> int:
        """The durability of a partition's topic."""
        return int(self.table[slot, words.P_FLAGS]) >> words.DURABILITY_SHIFT & 3

    def is_tail(self, number: int) -> bool:
        """Whether another log leads the partition."""
        return bool(self.table[self.slots[number], words.P_FLAGS] & words.FLAG_TAIL)

    def newest_epoch(self, number: int) -> int:
        """The newest leader epoch that is known of a partition; 0: none is."""
        history, known = self.epochs[number], int(self.table[self.slots[number], words.P_EPOCH])
        return max(known, history[-1][0]) if history else known

    def lead(self, number: int, epoch: int) -> None:
        """Begin a leader epoch at the partition's end. Epochs without a record are dropped."""
        row = self.table[self.slots[number]]
        assert epoch >= row[words.P_EPOCH], "a leader epoch never falls"
        row[words.P_EPOCH] = epoch
        row[words.P_FLAGS] &= ~(words.FLAG_CLOSED | words.FLAG_TAIL)
        self.led.add(number)
        self.note_epoch(number, epoch, int(row[words.P_LOG_END]))

    def note_epoch(self, number: int, epoch: int, offset: int) -> None:
        """Enter an epoch that begins at an offset into the history."""
        history = list(self.epochs[number])
        while history and history[-1][1] >= offset and history[-1][0] <= epoch:
            history.pop()
        if not history or history[-1][0] < epoch:
            history.append((epoch, offset))
        self.epochs[number] = history

    def close(self, number: int, epoch: int) -> None:
        """Take no appends: the partition moves. One that this life has not led yet stays in the
        newest epoch that is known, or in `epoch`: it begins none."""
        row = self.table[self.slots[number]]
        if number not in self.led:
            row[words.P_EPOCH] = epoch = max(epoch, self.newest_epoch(number))
            self.note_epoch(number, epoch, int(row[words.P_LOG_END]))
        row[words.P_FLAGS] = int(row[words.P_FLAGS]) & ~words.FLAG_TAIL | words.FLAG_CLOSED
        self.led.add(number)

    def become_tail(self, number: int, end: int) -> None:
        """Another log leads the partition from offset `end` on: its history is that one's."""
        row = self.table[self.slots[number]]
        # The flag first: readers of the shared memory look at what is stable before they look here.
        row[words.P_FLAGS] = int(row[words.P_FLAGS]) & ~words.FLAG_CLOSED | words.FLAG_TAIL
        self.led.discard(number)
        self.epochs[number] = []
        self.raise_end(number, end)

    def begin_at(self, number: int, epoch: int, start: int, state: AdoptedRow) -> None:
        """A leadership begins at offset `start`, and knows of what is before it what is adopted:
        nothing is left of what the row has said."""
        row = self.table[self.slot_of(number)]
        self.led.discard(number)
        self.epochs[number] = [(epoch, start)]
        row[words.P_FLAGS] &= ~(words.FLAG_CLOSED | words.FLAG_TAIL)
        row[words.P_LOG_START], row[words.P_LOG_END] = state.log_start, start
        row[words.P_SEALED_END], row[words.P_DECIDED_END] = state.sealed_end, state.decided_end
        row[words.P_COMPACTED_END], row[words.P_LED_FROM] = state.compacted_end, start
        row[words.P_MAX_TIMESTAMP] = state.max_timestamp
        self.set_unsealed(number, state.unsealed_bytes, state.unsealed_since_ms)
        row[words.P_OPEN_FROM] = row[words.P_ABORTED_END] = 0
        show(row, start)

    def raise_end(self, number: int, end: int) -> None:
        """No end of the partition is below `end`, whatever the log has lost."""
        row = self.table[self.slots[number]]
        if end > row[words.P_LOG_END]:
            row[words.P_LOG_END] = end
            show(row, end)

    def cut_history(self, number: int) -> None:
        """Forget the epochs that begin above the partition's end: their records are lost."""
        history, end = self.epochs[number], int(self.table[self.slots[number], words.P_LOG_END])
        kept = [each for each in history if each[1] <= end]
        self.epochs[number] = kept or history[:1]

    def start_at(self, number: int, offset: int) -> None:
        """Move a partition's log start up; epochs that ended before it are forgotten."""
        row = self.table[self.slots[number]]
        row[words.P_LOG_START] = start = max(
            int(row[words.P_LOG_START]), min(offset, int(row[words.P_LOG_END]))
        )
        history = list(self.epochs[number])
        while len(history) > 1 and history[1][1] <= start:
            history.pop(0)
        if history and history[0][1] < start:
            history[0] = (history[0][0], start)
        self.epochs[number] = history

    def epoch_at(self, number: int, offset: int) -> int:
        """The leader epoch at an offset; before the first one that is known, that one."""
        history = self.epochs[number]
        return max((epoch for epoch, start in history if start <= offset), default=history[0][0])

    def end_of_epoch(self, number: int, epoch: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and the offset where it ended: (-1, -1) for unknown.

        As OffsetForLeaderEpoch answers (KIP-101, KIP-279).
        """
        history = self.epochs[number]
        row = self.table[self.slots[number]]
        if not history or epoch > history[-1][0]:
            return -1, -1
        if epoch == history[-1][0]:
            return epoch, int(row[words.P_LOG_END])
        if epoch < history[0][0]:
            return epoch, history[0][1]
        for before, after in pairwise(history):
            if before[0] <= epoch < after[0]:
                return before[0], after[1]
        raise AssertionError("the history has no gap")

    def show_all(self) -> None:
        """Make everything visible: all recovered records have reached their level."""
        for slot in self.slots.values():
            row = self.table[slot]
            show(row, int(row[words.P_LOG_END]))

    def extend(self, number: int, end: int) -> None:
        """Move a partition's end up to where sealed segments are known to reach."""
        row = self.table[self.slots[number]]
        assert end >= row[words.P_LOG_END], "no offset is given away twice"
        epoch, is_led = int(row[words.P_EPOCH]), number in self.led
        if is_led and self.epochs[number][-1:] == [(epoch, int(row[words.P_LOG_END]))]:
            # It has no record yet: those that are sealed are of earlier epochs.
            self.epochs[number] = self.epochs[number][:-1]
        row[words.P_LOG_END] = end
        show(row, end)
        if is_led:
            self.note_epoch(number, epoch, end)

    def drop(self, number: int) -> None:
        """Forget a partition whose topic was deleted."""
        slot = self.slots.pop(number)
        self.epochs.pop(number)
        self.led.discard(number)
        self.table[slot] = 0
        self._free.append(slot)
