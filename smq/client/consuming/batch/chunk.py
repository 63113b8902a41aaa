"""Records cut into columns over the memory that holds them. Batches are made of chunks.

    memory    uint8: a ring, the bytes of a fetch, or an arena of decompressed batches
    columns   int64 [C_FIELDS, records]: where each field begins in `memory`, and its length

A record's fields are read when they are used. A chunk of a ring is lent: the ring may overwrite it.
Cutting checks the bounds of all places, so a late read gets garbage at worst.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cached_property, partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from shm.kernels.reader.cut import cut_batches, records_announced, run_of
from shm.kernels.reader.lend import F_ROW
from shm.kernels.reader.lend_few import RECORDS_FEW
from shm.kernels.record.records import (
    B_AT,
    B_COUNT,
    B_END,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_FIELDS,
    C_HEADER_COUNT,
    C_HEADERS_AT,
    C_HEADERS_FIRST,
    C_KEY_AT,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    C_VALUE_AT,
    C_VALUE_LENGTH,
    fill_headers,
    new_headers,
)
from shm.reuse import empty_words
from smq.client.consuming.batch.headers import (
    HEADERS_AT_ONCE,
    Header,
    Headers,
    ManyHeaders,
    headers_at,
)
from smq.client.errors import BatchReleased
from smq.client.names import TopicPartition
from smq.client.payload_formats import read_array, read_table
from smq.client.reference import HANDLE_HEADERS_WRITTEN, PAYLOAD_HEADERS
from smq.model.references import NotAHandle
from smq.wire.inflate import ARENA_BYTES, HEADER_COLUMN_BYTES, RECORD_COLUMN_BYTES, inflate

if TYPE_CHECKING:
    import pyarrow as pa

    from smq.client.reference import Payload, Payloads


class _Released:
    """Replaces the memory of a released chunk: records raise BatchReleased."""

    def __getitem__(self, _: object) -> memoryview:
        raise BatchReleased


RELEASED = _Released()
_ONLY_HEADER = HANDLE_HEADERS_WRITTEN[1:]  # Without their count.

Found = TypeVar("Found")
Places = tuple[list[int], list[int]]


class CutStop(Enum):
    """Why cutting stopped before the end: the next batch is malformed or inflates beyond the limit,
    itself or its columns, or this poll has inflated enough."""

    MALFORMED = 0
    FULL = 1
    BEYOND = 2


class PollRoom:
    """How much a poll may still inflate. A batch may inflate to `bytes_max`, and so may the columns
    of its records, and those of its headers, which batches that are not compressed have, too; the
    poll ends with the batch that brings all of these to so much."""

    __slots__ = ("bytes_max", "left", "stop")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = self.left = bytes_max
        self.stop = CutStop.MALFORMED

    def renew(self) -> None:
        """Begin a poll."""
        self.left = self.bytes_max

    def take(self, chunk: "Chunk") -> None:
        """Count the columns of a chunk; those of its headers are made when they are used."""
        self.left -= chunk.columns.nbytes + HEADER_COLUMN_BYTES * chunk.header_count


class PlacedBatches(NamedTuple):
    """Record batches in place.

    facts    as in shm.kernels.reader.lend; F_ROW is an index of `names`
    is_lent  whether the memory may be overwritten
    """

    memory: np.ndarray
    facts: np.ndarray
    names: Sequence[TopicPartition]
    is_lent: bool


class _Place(NamedTuple):
    offset: int
    timestamp_ms: int
    chunk: "Chunk"
    row: int


class Record(_Place):
    """A record, valid as long as its batch; then its fields raise BatchReleased.

    `key` and `headers` are copies. `value` is a view of its bytes in place.
    """

    __slots__ = ()

    @property
    def value(self) -> memoryview | None:
        """A view of the value's bytes in place; None is null."""
        chunk, row = self[2], self[3]
        starts, lengths = chunk.values or chunk.find_values()
        start, length = starts[row], lengths[row]
        return None if length < 0 else chunk.view[start : start + length]

    @property
    def key(self) -> bytes | None:
        """The key; None is null."""
        chunk, row = self[2], self[3]
        starts, lengths = chunk.keys or chunk.find_keys()
        start, length = starts[row], lengths[row]
        return None if length < 0 else bytes(chunk.view[start : start + length])

    @property
    def headers(self) -> Headers:
        """Pairs of a key and a value. A key that is not UTF-8 encodes back with `surrogateescape`.

        A tuple; more than 1,024 are a sequence that equals it and makes each when it is used.
        """
        return self.chunk.headers_of(self.row)

    def each_header(self) -> Iterator[Header]:
        """The same, one after the other: a batch of a few kilobytes may have millions."""
        return self.chunk.each_header(self.row)

    @property
    def payload(self) -> "Payload | None":
        """The payload that the record refers to, or else its value; None is null.

        It is read when it is used, and outlives the batch. Raises NotAHandle (a header announces a
        handle, but the value is none), with topic, partition and offset; StoreError (the filer
        cannot be reached).
        """
        try:
            return self.chunk.payload_of(self.row, self.value)
        except NotAHandle as error:
            raise NotAHandle(f"{self._place()}: {error}") from error

    def array(self) -> "np.ndarray":
        """The value as a NumPy array. It must be in the .npy format, as `send_array` writes it.

        Shape, dtype and C or Fortran order are the sender's. The array is a read-only view over
        `value` and valid as long: copy it to keep it. The content-type header is ignored.

        Raises ValueError, with topic, partition and offset: the value is null or no .npy array.
        Raises BatchReleased.
        """
        return self._read(read_array)

    def table(self) -> "pa.Table":
        """The value as an Arrow table. It must be an IPC stream, as `send_arrow` writes it.

        Schema and rows are the sender's. Columns are views over `value` and valid as long: copy the
        table to keep it. Contents are not validated: use pyarrow's `validate(full=True)`. The
        content-type header is ignored.

        Raises ValueError, with topic, partition and offset: the value is null or no IPC stream.
        Raises BatchReleased.
        """
        return self._read(read_table)

    def _read(self, read: Callable[[memoryview], Found]) -> Found:
        value = self.value
        if value is None:
            raise ValueError(f"{self._place()}: its value is null")
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f"{self._place()}: {error}") from error

    def _place(self) -> str:
        """Which record it is, for error messages."""
        topic, partition = self.chunk.partition_of(self.row)
        return f"the record at offset {self.offset} of topic {topic}, partition {partition}"

    @property
    def topic(self) -> str:
        """Its topic."""
        return self.chunk.partition_of(self.row).topic

    @property
    def partition(self) -> int:
        """Its partition."""
        return self.chunk.partition_of(self.row).partition

    def __repr__(self) -> str:
        return f"<record {self.offset} of {self.topic}-{self.partition}>"


_new_record = partial(tuple.__new__, Record)


class Chunk:
    """Records of some batches, in log order; `counts` has the number of records of each batch."""

    def __init__(self, batches: PlacedBatches, columns: np.ndarray, counts: np.ndarray) -> None:
        self.batches = batches
        self.memory = batches.memory
        self.columns = columns
        self.counts = counts
        self.view: memoryview | _Released = batches.memory.data
        self.keys: Places | None = None  # Filled at the first use.
        self.values: Places | None = None
        self.payloads: Payloads | None = None  # Finds the payloads of handles.

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def release(self) -> None:
        """Records that are used from now on raise BatchReleased."""
        self.view = RELEASED
        self.__dict__.pop("headers", None)

    def records(self) -> Iterator[Record]:
        """All records: tuples that read the columns when they are used."""
        columns, count = self.columns, len(self)
        if count <= RECORDS_FEW:  # One conversion for all fields is quicker.
            every = columns.tolist()
            self.keys = every[C_KEY_AT], every[C_KEY_LENGTH]
            self.values = every[C_VALUE_AT], every[C_VALUE_LENGTH]
            offsets, times = every[C_OFFSET], every[C_TIMESTAMP]
        else:
            offsets, times = columns[C_OFFSET].tolist(), columns[C_TIMESTAMP].tolist()
        return map(_new_record, zip(offsets, times, repeat(self), range(count), strict=False))

    def runs(self) -> Iterator[tuple[TopicPartition, Iterator[Record]]]:
        """All records, batch by batch, each with its partition."""
        records = self.records()
        for row, count in zip(self._rows, self.counts.tolist(), strict=True):
            run = islice(records, count)
            yield self.batches.names[row], run
            deque(run, maxlen=0)  # Skips what the caller left.

    def find_keys(self) -> Places:
        """Start and length of each key; length -1 is null."""
        self.keys = self.columns[C_KEY_AT].tolist(), self.columns[C_KEY_LENGTH].tolist()
        return self.keys

    def find_values(self) -> Places:
        """Start and length of each value; length -1 is null."""
        self.values = self.columns[C_VALUE_AT].tolist(), self.columns[C_VALUE_LENGTH].tolist()
        return self.values

    def partition_of(self, row: int) -> TopicPartition:
        """The partition of a row's record."""
        names = self.batches.names
        return names[0 if len(names) == 1 else self._rows[bisect_right(self._ends, row)]]

    @cached_property
    def _ends(self) -> list[int]:
        ends: list[int] = self.counts.cumsum().tolist()
        return ends

    @cached_property
    def _rows(self) -> list[int]:
        rows: list[int] = self.batches.facts[F_ROW].tolist()
        return rows

    @cached_property
    def header_count(self) -> int:
        """How many headers all records have."""
        return int(self.columns[C_HEADER_COUNT].sum())

    @cached_property
    def headers(self) -> np.ndarray:
        """A column for each header of all records; see `shm.kernels.record.records`."""
        headers = new_headers(self.header_count)
        fill_headers(self.memory, self.columns, headers)
        return headers

    def headers_of(self, row: int) -> Headers:
        """The headers of a record."""
        view, count = self.view[:], int(self.columns[C_HEADER_COUNT, row])
        if count == 0:
            return ()
        headers, first = self.headers, int(self.columns[C_HEADERS_FIRST, row])
        places = headers[:, first : first + count]
        if count > HEADERS_AT_ONCE:
            return ManyHeaders.copied(view, places)
        return headers_at(view, places)

    def each_header(self, row: int) -> Iterator[Header]:
        """The headers of a record, some made at a time."""
        view, count = self.view[:], int(self.columns[C_HEADER_COUNT, row])
        for at in range(0, count, HEADERS_AT_ONCE):
            view, headers = self.view[:], self.headers  # These say where the first is.
            first = int(self.columns[C_HEADERS_FIRST, row])
            end = first + min(at + HEADERS_AT_ONCE, count)
            yield from headers_at(view, headers[:, first + at : end])

    def payload_of(self, row: int, value: memoryview | None) -> "Payload | None":
        """The payload of a record with this value."""
        assert self.payloads is not None, "a consumer's chunks know its filer"
        topic = self.partition_of(row).topic
        if self._is_plainly_a_handle(row):
            return self.payloads.of_handle(topic, value)
        told = {name: each for name, each in self.each_header(row) if name in PAYLOAD_HEADERS}
        return self.payloads.of(topic, told, value)

    def _is_plainly_a_handle(self, row: int) -> bool:
        """Whether its only header marks a handle, as our producer writes it."""
        if self.columns.item(C_HEADER_COUNT, row) != 1:
            return False
        at = self.columns.item(C_HEADERS_AT, row)
        return self.view[at : at + len(_ONLY_HEADER)] == _ONLY_HEADER

    def up_to(self, count: int) -> "Chunk":
        """The records of the first batches."""
        batches = self.batches._replace(facts=self.batches.facts[:, :count])
        counts = self.counts[:count]
        return Chunk(batches, self.columns[:, : int(counts.sum())].copy(), counts)

    @property
    def size_bytes(self) -> int:
        """The memory of its batches, and of the columns of its records."""
        spans = self.batches.facts[B_END] - self.batches.facts[B_AT]
        return int(spans.sum()) + self.columns.nbytes

    def copy(self) -> "Chunk":
        """The same records over memory of their own."""
        if not self.batches.is_lent:
            return self.moved(self.memory, np.zeros(len(self.counts), np.int64))
        starts, ends = self.batches.facts[B_AT], self.batches.facts[B_END]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        memory = np.concatenate([self.memory[start:end] for start, end in spans])
        memory.flags.writeable = False
        return self.moved(memory, np.concatenate(([0], (ends - starts).cumsum()[:-1])) - starts)

    def moved(self, memory: np.ndarray, moves: np.ndarray) -> "Chunk":
        """The same records in other memory, where each batch lies this many bytes further on."""
        columns, by_record = self.columns.copy(), np.repeat(moves, self.counts)
        for field in (C_KEY_AT, C_VALUE_AT, C_HEADERS_AT):
            columns[field] += by_record
        chunk = Chunk(self.batches._replace(memory=memory, is_lent=False), columns, self.counts)
        chunk.payloads = self.payloads
        return chunk


def cut(batches: PlacedBatches, room: PollRoom) -> tuple[list[Chunk], int]:
    """Chunks of the records of some batches, and the number of batches that were cut.

    These are all batches, or those before the first that is unreadable or finds no room;
    `room.stop` then says which.
    """
    facts, chunks, room.stop = batches.facts, list[Chunk](), CutStop.MALFORMED
    first, count = 0, facts.shape[1]
    while first < count:
        if room.left <= 0:
            room.stop = CutStop.FULL
            break
        end, is_compressed, records = run_of(facts, first)
        if is_compressed:
            chunk, end = _inflated_run(batches, first, end, room)
        else:
            chunk, end = _plain_run(batches, first, end, records, room)
        if len(chunk.counts):
            chunks.append(chunk)
        first += len(chunk.counts)
        if first < end:
            break
    return chunks, first


def _plain_run(
    batches: PlacedBatches, first: int, end: int, records: int, room: PollRoom
) -> tuple[Chunk, int]:
    """The records of the first of some batches that are not compressed and announce so many
    records, and the end of these batches: behind the chunk's if it had to stop."""
    if RECORD_COLUMN_BYTES * records > room.left:
        end = _end_in_room(batches.facts, first, end, room)
        records = records_announced(batches.facts[:, first:end])
    if RECORD_COLUMN_BYTES * records > room.bytes_max:  # It is one batch.
        return _counted(_cut_run(batches, first, first, 0), first, end, room, is_beyond=True)
    chunk = _cut_run(batches, first, end, records)
    return _counted(chunk, first, end, room, is_beyond=False)


def _inflated_run(
    batches: PlacedBatches, first: int, end: int, room: PollRoom
) -> tuple[Chunk, int]:
    """The same of compressed batches."""
    memory, facts, names, _ = batches
    end = _end_in_room(facts, first, end, room)
    arena_bytes = min(ARENA_BYTES, room.left)
    memory, run, is_beyond = inflate(memory, facts[:, first:end], room.bytes_max, arena_bytes)
    end = first + run.shape[1]
    announced = records_announced(run)
    if RECORD_COLUMN_BYTES * announced > room.bytes_max:
        # The first fills the room alone. Without room for its records it is malformed.
        run, end = run[:, :1], first + 1
        run[B_RECORDS_END] = run[B_RECORDS_AT]
        announced, is_beyond = 0, True
    chunk = _cut_run(PlacedBatches(memory, run, names, is_lent=False), 0, run.shape[1], announced)
    is_beyond = is_beyond and len(chunk.counts) == run.shape[1] - 1
    room.left -= memory.nbytes
    return _counted(chunk, first, end, room, is_beyond=is_beyond)


def _end_in_room(facts: np.ndarray, first: int, end: int, room: PollRoom) -> int:
    """The end of the first batches whose records' columns have room, but of one at least."""
    records = np.maximum(facts[B_COUNT, first:end], 0).cumsum()
    return first + max(1, _fitting(RECORD_COLUMN_BYTES * records, room.left))


def _counted(
    chunk: Chunk, first: int, end: int, room: PollRoom, *, is_beyond: bool
) -> tuple[Chunk, int]:
    """The first batches of a chunk whose headers' columns may be made, counted, and their end."""
    if HEADER_COLUMN_BYTES * chunk.header_count > room.bytes_max:
        headers = np.concatenate([[0], chunk.columns[C_HEADER_COUNT].cumsum()])
        sums = HEADER_COLUMN_BYTES * headers[chunk.counts.cumsum()]
        good = _fitting(sums, room.bytes_max)
        chunk, is_beyond, end = chunk.up_to(good), good == 0, first + max(1, good)
    room.take(chunk)
    if is_beyond:
        room.stop = CutStop.BEYOND
    return chunk, end


def _fitting(sums: np.ndarray, bytes_max: int) -> int:
    """How many of these sums of bytes are within the limit."""
    return int(np.searchsorted(sums, bytes_max, "right"))


def _cut_run(batches: PlacedBatches, first: int, end: int, records: int) -> Chunk:
    memory, facts = batches.memory, batches.facts
    columns = empty_words(C_FIELDS * records).reshape(C_FIELDS, records)
    counts = np.empty(end - first + 1, np.int64)
    good = cut_batches(memory, facts, first, end, columns, counts)
    found = counts.item(end - first)
    assert found <= records, "the kernel has cut more than the columns hold: over other memory"
    if found < records:
        columns = columns[:, :found].copy()
    if good < facts.shape[1]:
        batches = batches._replace(facts=facts[:, first : first + good])
    return Chunk(batches, columns, counts[:good])
