"""The table by which kernels find a partition: follows the catalog, laid out as
shm.kernels.log.directory says.

A change of the catalog costs time in proportion to the changed topics. Rows, slots and names are
appended; those of deleted topics stay until the room is used up. Then the table is rebuilt without
them, with twice the room that it needs.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from shm.kernels.log.directory import (
    DIRECTORY_HEADER_WORDS,
    GONE,
    INTERNAL,
    LED_ELSEWHERE,
    SECRET,
    TOPIC_WORDS,
    enter_topics,
)
from smq.model.catalog import INTERNAL_TOPICS, Topic

ROOM_MIN = 64  # Rows, slots, and words of names.
_HASH, _KEY_AT, _KEY_BYTES, _SLOT_AT, _COUNT = range(TOPIC_WORDS)


class _Sizes(NamedTuple):
    """Of rows, slots and the bytes of names, how many."""

    rows: int
    slots: int
    name_bytes: int

    def and_also(self, more: "_Sizes") -> "_Sizes":
        return _Sizes(*(a + b for a, b in zip(self, more, strict=True)))

    def fit(self, room: "_Sizes") -> bool:
        return all(a <= b for a, b in zip(self, room, strict=True))


class Directory:
    """The directory of a catalog. `secret` has 16 bytes that no client knows.

    Invariant: the rows that are not gone are those of the topics taken and of the internal topics
    whose names these leave free, in the order of `_rows`.

    words   what a kernel takes: int64, one dimension; another array once the room is used up
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = np.frombuffer(secret, np.int64)
        self._rows: dict[str, int] = {}  # By topic: its name's, before its id's.
        self._used, self._room = _Sizes(0, 0, 0), _Sizes(ROOM_MIN, ROOM_MIN, ROOM_MIN)
        self.words = self._blank()
        self._enter(list(INTERNAL_TOPICS.values()), lambda _number: None)

    def invariants(self) -> None:
        """Raise AssertionError if the class's invariant does not hold."""
        assert self._used.fit(self._room)
        kept = np.flatnonzero(self._table()[: self._used.rows, _HASH] != GONE)
        assert kept[::2].tolist() == list(self._rows.values())
        assert kept[1::2].tolist() == [row + 1 for row in self._rows.values()]
        names = self._names()
        for name, row in self._rows.items():
            at, count = self._table()[row, [_KEY_AT, _KEY_BYTES]].tolist()
            assert names[at : at + count].tobytes() == name.encode()

    def take(
        self, gone: Iterable[Topic], come: Iterable[Topic], code_of: Callable[[int], int | None]
    ) -> None:
        """Forget topics, and enter others; one that has changed is both.

        `code_of(number)` gives log << 32 | slot for a partition led here, None for the others.
        """
        entering = {topic.name: topic for topic in come}
        leaving = {topic.name for topic in gone}
        for name in leaving & INTERNAL_TOPICS.keys():
            entering.setdefault(name, INTERNAL_TOPICS[name])
        for name in leaving | entering.keys():  # A user's topic comes before an internal one.
            row = self._rows.pop(name, None)
            if row is not None:
                self._table()[row : row + 2, _HASH] = GONE
        self._enter(list(entering.values()), code_of)

    def _enter(self, topics: Sequence[Topic], code_of: Callable[[int], int | None]) -> None:
        keys = [key for topic in topics for key in (topic.name.encode(), topic.id.bytes)]
        counts = np.fromiter((topic.partition_count for topic in topics), np.int64, len(topics))
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        more = _Sizes(len(keys), int(counts.sum()), int(lengths.sum()))
        if not self._used.and_also(more).fit(self._room):
            self._move(more)
        used, self._used = self._used, self._used.and_also(more)
        names = b"".join(keys)
        self._names()[used.name_bytes : self._used.name_bytes] = np.frombuffer(names, np.uint8)
        numbers = (number for topic in topics for number in topic.partition_numbers)
        codes = (INTERNAL if number < 0 else code_of(number) for number in numbers)
        slots = [LED_ELSEWHERE if code is None else code for code in codes]
        self._slots()[used.slots : self._used.slots] = slots
        rows = self._table()[used.rows : self._used.rows]
        rows[:, _KEY_AT] = used.name_bytes + np.cumsum(lengths) - lengths
        rows[:, _KEY_BYTES] = lengths
        rows[:, _SLOT_AT] = np.repeat(used.slots + np.cumsum(counts) - counts, 2)
        rows[:, _COUNT] = np.repeat(counts, 2)
        enter_topics(self.words, self._names(), used.rows, self._used.rows)
        self._rows.update((topic.name, used.rows + 2 * i) for i, topic in enumerate(topics))

    def _move(self, more: _Sizes) -> None:
        """Move all that is not gone into another array, with room for it and `more`, twice."""
        before, slots, names = self._table()[: self._used.rows], self._slots(), self._names()
        table = before[before[:, _HASH] != GONE]
        names, table[:, _KEY_AT] = _gathered(names, table[:, _KEY_AT], table[:, _KEY_BYTES])
        slots, slot_at = _gathered(slots, table[::2, _SLOT_AT], table[::2, _COUNT])
        table[:, _SLOT_AT] = np.repeat(slot_at, 2)
        self._used = _Sizes(len(table), len(slots), len(names))
        wanted = self._used.and_also(more)
        self._room = _Sizes(*(2 * each + ROOM_MIN for each in wanted))
        self.words = self._blank()
        self._table()[: len(table)], self._slots()[: len(slots)] = table, slots
        self._names()[: len(names)] = names
        self._rows = dict(zip(self._rows, range(0, len(table), 2), strict=True))
        enter_topics(self.words, self._names(), 0, len(table))

    def _blank(self) -> np.ndarray:
        buckets = 1 << (2 * self._room.rows).bit_length()
        topics_at = DIRECTORY_HEADER_WORDS + buckets
        slots_at = topics_at + TOPIC_WORDS * self._room.rows
        names_at = slots_at + self._room.slots
        words = np.zeros(names_at + self._room.name_bytes // 8 + 1, np.int64)
        words[:4] = buckets, topics_at, slots_at, names_at
        words[SECRET : SECRET + 2] = self._secret
        return words

    def _table(self) -> np.ndarray:
        return self.words[self.words[1] : self.words[2]].reshape(-1, TOPIC_WORDS)

    def _slots(self) -> np.ndarray:
        return self.words[self.words[2] : self.words[3]]

    def _names(self) -> np.ndarray:
        return self.words[self.words[3] :].view(np.uint8)


def _gathered(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """These runs of values, one after the other, and where each begins now."""
    begins = np.cumsum(lengths) - lengths
    where = np.repeat(starts - begins, lengths) + np.arange(lengths.sum())
    return values[where], begins
