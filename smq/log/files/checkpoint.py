"""The checkpoint of a log: the state of its partitions when the log had reached a position.

    0       8            12         16
    +-------+------------+----------+---------------+-----------+---------+-----------+
    |magic  |check       |JSON bytes| JSON          | producers | aborted | adoptions | int64 words
    +-------+------------+----------+---------------+-----------+---------+-----------+

The last byte of the magic is the version of the format. In version 1 the check covers what follows
it, in later ones the magic too: this tells a newer file from a damaged one.

A right check says that nothing has changed by chance, not who wrote it: a snapshot may come from
anywhere. So what is read is judged before anything uses it. Kernels take it as it is: a producer
with more batches than a row has room for would have them written over other rows.

The file is written whole, synced, then renamed. A start takes the ends of partitions from the
frames themselves. Sealed ends, log starts, leader epochs, and the producers of recycled batches are
known from the checkpoint only.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES
from shm.kernels.log.producers import (
    PRODUCER_BATCHES,
    PRODUCER_COLUMNS,
    R_BATCH_COUNT,
    R_LAST_MS,
    R_NEWEST,
)
from shm.layout import PARTITIONS_PER_LOG_MAX
from smq.log.files.adopted import Adoption, read_adoptions
from smq.log.files.bounds import (
    INT16,
    INT32,
    INT64,
    NUMBERS,
    Bounds,
    require,
    require_producers,
    require_transactions,
)
from smq.log.files.disk import Disk
from smq.log.files.pieces import by_pieces
from smq.model.config import INT32_MAX
from smq.model.errors import MadeByNewer, StoreError
from smq.model.setting import INT64_MAX

MAGIC = b"SMQCKPT"
# Version 1 has no transactions; in 2 the aborted ones are in the JSON; 3: see below; 4 knows of no
# other logs.
VERSION = 5
_HEAD = struct.Struct("<7sBI")
_TEXT_AT = _HEAD.size + 4
FILE_NAME = "checkpoint"
FILE_NAME_BEFORE = "checkpoint.before"
PARTITIONS_PIECE = 256  # Encoded per step, and …
BYTES_PIECE = 1 << 20  # … copied: the loop waits for Python's lock meanwhile.
_LIST_BYTES_MIN = 6  # "[0,0],": no list of a checkpoint is shorter on average.
_LIST_NUMBERS_MAX = 5  # A transaction has as many, and a partition 13 in two lists at least.
_QUOTES_MAX = 2 * 8  # Around the names of its fields.


class CheckpointLimits(NamedTuple):
    """What a checkpoint may say.

    place_max        the highest offset and position
    text_bytes_max   of its JSON, …
    lists_max        … and how many lists that may have: partitions, epochs, transactions
    epochs           leader epochs and generations
    """

    place_max: int
    text_bytes_max: int
    lists_max: int
    epochs: Bounds


# No log gets to such offsets and positions, and sums with them fit. A start looks at whole files.
OWN = CheckpointLimits(INT64_MAX // 2, 2**32 - 1, 2**32 - 1, INT32)
# A restored log goes on from there. One KiB for each partition of the largest log: a row takes up
# to 200 bytes, an epoch some 20.
RESTORED = CheckpointLimits(INT64_MAX // 4, PARTITIONS_PER_LOG_MAX << 10, 2**32 - 1, (0, INT32_MAX))
# A list takes some 150 bytes once it is parsed, ten times its text.
_LISTS_AT_LEAST = 1 << 19  # Of topics that were deleted a moment before, and of transactions.
_LISTS_OF_PARTITION = 64


def restored_limits(partition_count: int, generation: int) -> CheckpointLimits:
    """RESTORED, for a snapshot with so many partitions, of this generation."""
    lists_max = _LISTS_AT_LEAST + _LISTS_OF_PARTITION * partition_count
    return RESTORED._replace(lists_max=lists_max, epochs=(0, generation))


@dataclass(slots=True)
class PartitionCheckpoint:
    """A partition's row in the checkpoint; offsets are Kafka's.

    `epochs` is the leader-epoch history: (epoch, offset of its first record), oldest first. A log
    start or compacted end above the sealed end is of a later moment than the checkpoint's position,
    as a snapshot knows it (smq.backup.wal): it counts once the frames up to there are read.

    `led_from` is where its newest leadership in this log begins: no end is below, whatever the log
    has lost. `is_tail`, 0 or 1, says that another log leads it.
    """

    number: int
    epochs: list[tuple[int, int]] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0
    sealed_end: int = 0
    max_timestamp: int = -1
    unsealed_bytes: int = 0
    unsealed_since_ms: int = 0
    compacted_end: int = 0
    decided_end: int = 0
    led_from: int = 0
    is_tail: int = 0

    def at_position(self) -> "PartitionCheckpoint":
        """The row without bounds of a later moment; this one if it has none."""
        start = min(self.log_start, self.decided_end)
        compacted_end = min(self.compacted_end, self.decided_end)
        if (start, compacted_end) == (self.log_start, self.compacted_end):
            return self
        return replace(self, log_start=start, compacted_end=compacted_end)


class Open(NamedTuple):
    """A transaction of a producer in a partition; `since_ms` is on the time line."""

    number: int
    producer_id: int
    epoch: int
    first_offset: int
    since_ms: int


class Aborted(NamedTuple):
    """An aborted transaction of a producer; the last offset is its marker's."""

    number: int
    producer_id: int
    epoch: int
    first_offset: int
    last_offset: int


ABORTED_COLUMNS = len(Aborted._fields)


class TransactionsCopy(NamedTuple):
    """The transactions of all partitions, each in the order of smq.log.transactions.

    aborted  int64 arrays [n, 5] of rows with the fields of Aborted, one partition after the other
    """

    open: list[Open]
    aborted: list[np.ndarray]


NO_TRANSACTIONS = TransactionsCopy([], [])
_FIELDS = [each.name for each in fields(PartitionCheckpoint)]
_VALUES = _FIELDS[2:]  # Behind number and epochs.


@dataclass(slots=True)
class Checkpoint:
    """The state of a log's partitions when everything below `position` had been applied.

    producers   int64 [n, 32], rows of shm.kernels.log.producers with the partition's *number* in
                place of its slot
    """

    position: int
    synced: int
    generation: int
    partitions: list[PartitionCheckpoint]
    producers: np.ndarray
    transactions: TransactionsCopy = NO_TRANSACTIONS
    adoptions: Sequence[Adoption] = ()

    def know_no_later_than(self, now_ms: int) -> None:
        """Take the present for each time in the future: no age is negative.

        The host may have been started again, and its time line have lost what was not noted yet;
        earlier versions have kept wall time.
        """
        for partition in self.partitions:
            partition.unsealed_since_ms = min(partition.unsealed_since_ms, now_ms)
        used_ms = self.producers[:, R_LAST_MS]
        np.minimum(used_ms, now_ms, out=used_ms)
        kept = self.transactions
        opened = [each._replace(since_ms=min(each.since_ms, now_ms)) for each in kept.open]
        self.transactions = kept._replace(open=opened)

    def save(self, disk: Disk, directory: Path) -> None:
        """Write it to the log's directory. Raises OSError; the former one then still stands."""
        assert 0 <= self.synced <= self.position
        text = self._text()
        parts = [self.producers, *self.transactions.aborted]
        parts += [page for each in self.adoptions for page in each.pages]
        size = sum(each.nbytes for each in parts)
        data = np.empty(_TEXT_AT + len(text) + size, np.uint8)
        data[_HEAD.size : _TEXT_AT] = np.frombuffer(len(text).to_bytes(4, "little"), np.uint8)
        data[_TEXT_AT : _TEXT_AT + len(text)] = np.frombuffer(text, np.uint8)
        filed = data[_TEXT_AT + len(text) :]
        for each in parts:
            rows = np.ascontiguousarray(each).reshape(-1).view(np.uint8)
            for piece in by_pieces(len(rows), BYTES_PIECE):
                filed[piece] = rows[piece]
            filed = filed[len(rows) :]
        # The check covers the magic as if it stood right before the rest.
        data[4 : _HEAD.size] = np.frombuffer(MAGIC + bytes([VERSION]), np.uint8)
        _HEAD.pack_into(data.data, 0, MAGIC, VERSION, _check(data[4:]))
        path = directory / FILE_NAME
        if path.exists():
            disk.rename(path, directory / FILE_NAME_BEFORE)
        disk.replace(path, data.data)

    def _text(self) -> bytes:
        head = {
            "position": self.position,
            "synced": self.synced,
            "generation": self.generation,
            "producer_count": len(self.producers),
            "aborted_count": sum(map(len, self.transactions.aborted)),
            "adoptions": [each.head for each in self.adoptions],
        }
        rows = (
            [[getattr(each, name) for name in _FIELDS] for each in self.partitions[piece]]
            for piece in by_pieces(len(self.partitions), PARTITIONS_PIECE)
        )
        partitions = ",".join(_json(piece)[1:-1] for piece in rows)
        opened = f'"open":[{_by_pieces(self.transactions.open)}]'
        return f'{_json(head)[:-1]},{opened},"partitions":[{partitions}]}}'.encode()

    @classmethod
    def load(cls, directory: Path) -> "tuple[Checkpoint | None, bool]":
        """A log's checkpoint, and whether it is the newest one.

        The former one serves if the newest is damaged; (None, False) if there is none at all.
        Raises MadeByNewer; OSError if one cannot be read: that is no damage.
        """
        for name in (FILE_NAME, FILE_NAME_BEFORE):
            loaded = cls._load(directory / name)
            if loaded is not None:
                return loaded, name == FILE_NAME
        return None, False

    @classmethod
    def _load(cls, path: Path) -> "Checkpoint | None":
        try:
            return cls.of(path.read_bytes(), path)
        except (FileNotFoundError, Implausible):
            return None

    @classmethod
    def of(cls, data: bytes, path: Path, limits: CheckpointLimits = OWN) -> "Checkpoint | None":
        """The checkpoint that is in the bytes of a file; None: they are damaged.

        Raises MadeByNewer; Implausible if the check is right, and no log writes such content.
        """
        if len(data) < _TEXT_AT:
            return None
        magic, version, check = _HEAD.unpack_from(data)
        if magic != MAGIC:
            return None
        checked = (b"" if version == 1 else data[: len(MAGIC) + 1]) + data[_HEAD.size :]
        if _check(checked) != check:
            return None
        if version > VERSION:
            raise MadeByNewer(str(path), f"its format is {version}, this SMQ knows up to {VERSION}")
        try:
            found = cls._parsed(version, data, limits)
            _judge(found, limits)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise Implausible(
                str(path),
                "its check is right, but no log writes what is in it: somebody has changed it",
            ) from None
        return found

    @classmethod
    def _parsed(cls, version: int, data: bytes, limits: CheckpointLimits) -> "Checkpoint":
        """The content of a file. Raises almost anything if no log has written it."""
        text_bytes, body = int.from_bytes(data[_HEAD.size : _TEXT_AT], "little"), data[_TEXT_AT:]
        require([text_bytes], (0, limits.text_bytes_max))
        _judge_text(text := body[:text_bytes], limits.lists_max)
        head = json.loads(text)
        words = np.frombuffer(body[text_bytes:], np.int64)
        count = head.get("producer_count", len(words) // PRODUCER_COLUMNS)
        require([count], (0, len(words) // PRODUCER_COLUMNS))
        end = count * PRODUCER_COLUMNS
        aborted = words[end:] if version > 2 else np.array(head.get("aborted", []), np.int64)
        adoptions = []
        if version > 4:
            aborted_words = ABORTED_COLUMNS * head["aborted_count"]
            require([aborted_words], (0, len(aborted)))
            adoptions = read_adoptions(head["adoptions"], aborted[aborted_words:])
            aborted = aborted[:aborted_words]
        partitions = [_partition(*row) for row in head["partitions"]]
        producers = words[:end].reshape(-1, PRODUCER_COLUMNS).copy()
        # Without a batch none is the newest: earlier logs wrote -1 where all had been cut off.
        producers[producers[:, R_BATCH_COUNT] == 0, R_NEWEST] = PRODUCER_BATCHES - 1
        transactions = TransactionsCopy(
            [Open._make(row) for row in head.get("open", [])],
            [aborted.reshape(-1, ABORTED_COLUMNS).copy()],
        )
        return cls(
            head["position"],
            head["synced"],
            head["generation"],
            partitions,
            producers,
            transactions if version > 3 else _lowered(transactions, partitions),
            adoptions,
        )


class Implausible(StoreError):
    """A checkpoint with a right check and a content that no log has written."""


def _judge_text(text: bytes, lists_max: int) -> None:
    """Raise ValueError for a text that takes memory out of proportion once it is parsed: an empty
    list takes 20 times its two letters."""
    require([text.count(b"[")], (0, min(lists_max, len(text) // _LIST_BYTES_MIN + 1)))
    require([text.count(b",")], (0, _LIST_NUMBERS_MAX * lists_max))
    require([text.count(b"{")], (0, 1))
    require([text.count(b'"')], (0, _QUOTES_MAX))


def _judge(found: Checkpoint, limits: CheckpointLimits) -> None:
    """Raise ValueError or TypeError unless a log can have written it."""
    places = 0, limits.place_max
    require([found.position], places)
    require([found.synced], (0, found.position))
    require([found.generation], limits.epochs)
    require([found.position % FRAME_ALIGNMENT_BYTES], (0, 0))
    require([len(found.partitions)], (0, PARTITIONS_PER_LOG_MAX))
    for each in found.partitions:
        _judge_partition(each, places, limits.epochs)
    require_producers(found.producers)
    for opened in found.transactions.open:
        require([opened.number], NUMBERS)
        require([opened.producer_id, opened.since_ms], INT64)
        require([opened.epoch], INT16)
        require([opened.first_offset], places)
    for rows in found.transactions.aborted:
        require_transactions(rows[:0], rows, places)
    for adoption in found.adoptions:
        adoption.judge(places, limits.epochs)


def _judge_partition(state: PartitionCheckpoint, places: Bounds, epochs: Bounds) -> None:
    require([state.number], NUMBERS)
    bounds = state.log_start, state.log_end, state.sealed_end
    require([*bounds, state.compacted_end, state.decided_end, state.led_from], places)
    require([state.is_tail], (0, 1))
    require([state.max_timestamp, state.unsealed_bytes, state.unsealed_since_ms], INT64)
    require([epoch for epoch, _ in state.epochs], epochs)
    require([offset for _, offset in state.epochs], places)
    if any(before[0] >= after[0] for before, after in pairwise(state.epochs)):
        raise ValueError("its epochs do not grow")


def _partition(number: int, epochs: list[list[int]], *values: int) -> PartitionCheckpoint:
    """A row. Before version 3 it has no compacted end: whatever is sealed may be compacted.

    Before version 4 it has no decided end: whatever is sealed is decided. Before version 5 it has
    one leadership, from offset 0 on.
    """
    state = PartitionCheckpoint(number, [(epoch, offset) for epoch, offset in epochs], *values)
    if len(values) <= _VALUES.index("compacted_end"):
        state.compacted_end = state.sealed_end
    if len(values) <= _VALUES.index("decided_end"):
        state.decided_end = state.sealed_end
    return state


def _lowered(
    transactions: TransactionsCopy, partitions: list[PartitionCheckpoint]
) -> TransactionsCopy:
    """Before version 4 a transaction's first offset was moved up to the log start, which may lie
    within its first batch. It counts from 0: the log has no earlier batch of its producer."""
    starts = {each.number: each.log_start for each in partitions}
    opened = [
        each._replace(first_offset=0) if each.first_offset <= starts.get(each.number, 0) else each
        for each in transactions.open
    ]
    for rows in transactions.aborted:
        bounds = np.array([starts.get(number, 0) for number in rows[:, 0].tolist()], np.int64)
        first = rows[:, Aborted._fields.index("first_offset")]
        first[first <= bounds] = 0
    return transactions._replace(open=opened)


def _by_pieces(rows: Sequence[tuple[int, ...]]) -> str:
    pieces = (rows[piece] for piece in by_pieces(len(rows), PARTITIONS_PIECE))
    return ",".join(_json(piece)[1:-1] for piece in pieces)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _check(data: bytes | np.ndarray) -> int:
    return int(crc32c(np.frombuffer(data, np.uint8), 0, len(data)))
