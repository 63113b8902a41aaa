"""A reader of some partitions gets all visible records, in order, once."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from shm.kernels.base import words
from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.base.frames import frame_bytes
from shm.kernels.log.append import append_batch, make_room
from shm.kernels.reader.lend import (
    CURSOR_AWAY,
    CURSOR_BOUND,
    F_FIELDS,
    F_POSITION,
    F_ROW,
    F_START,
    LOOKED_AHEAD_MAX,
    OVERTAKEN,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    W_AFTER,
    W_AWAY,
    W_FIELDS,
    W_HERE,
    W_NEXT,
    W_NUMBER,
    W_SEEKING,
    W_SLOT,
    W_STATE,
    lend_batches,
    oldest_position,
    place_rows,
)
from shm.kernels.record.records import B_BASE_OFFSET, B_LAST_OFFSET
from shm.reader import LogReader
from shm.segment import LogMemory
from smq.wire.records import Record, write_batch

NUMBERS = (7, 9, 300)
RING_BYTES = 1 << 14
INT64_MAX = 2**63 - 1


class Writer:
    """A log's only writer, as a shard is: a slot for each of NUMBERS."""

    def __init__(self, ring_bytes: int = RING_BYTES) -> None:
        self.memory = LogMemory.create(0, ring_bytes, ring_bytes // 2, 4)
        for slot, number in enumerate(NUMBERS):
            row = self.memory.partitions[slot]
            row[words.P_NUMBER], row[words.P_FLAGS], row[words.P_LAST_ENTRY] = (
                number,
                words.FLAG_IN_USE,
                -1,
            )
        self.memory.words[words.WORD_PARTITION_COUNT] = len(NUMBERS)
        self.links = np.full((LINK_COLUMNS, self.memory.layout.index_capacity), -1, np.int64)

    def append(self, slot: int, records: int = 2, value: bytes = b"v", attributes: int = 0) -> None:
        sent = write_batch([Record(each, 1, b"key", value, ()) for each in range(records)])
        data = np.frombuffer(bytearray(sent), np.uint8)
        data[22] |= attributes
        self.memory.words[words.WORD_WRITTEN] = self.memory.words[words.WORD_TAIL]
        self.memory.words[words.WORD_INDEX_KEEP] = self.memory.words[words.WORD_INDEX_TAIL]
        assert make_room(self.memory.memory, frame_bytes(len(data)))
        append_batch(self.memory.memory, self.links, slot, data, 0, len(data), 0, 0)

    def show(self, *slots: int) -> None:
        for slot in slots:
            row = self.memory.partitions[slot]
            row[words.P_HIGH_WATERMARK] = row[words.P_LOG_END]


class Reader:
    """What a consumer keeps of a log."""

    def __init__(self, writer: Writer, numbers: tuple[int, ...] = NUMBERS) -> None:
        self.log = LogReader(LogMemory.attach(writer.memory.fd))
        self.memory = self.log.memory.memory
        self.wanted = np.zeros((W_FIELDS, len(numbers)), np.int64)
        self.wanted[W_NUMBER] = numbers
        self.wanted[W_SLOT] = -1
        self.wanted[W_STATE] = W_SEEKING
        self.cursor = np.array([INT64_MAX, 0, 0, 0, READ_UNCOMMITTED])
        self.facts = np.zeros((F_FIELDS, 64), np.int64)

    def place(self) -> list[int]:
        place_rows(self.memory, self.wanted, self.cursor)
        states: list[int] = self.wanted[W_STATE].tolist()
        return states

    def lend(self, bytes_max: int = 1 << 20) -> list[tuple[int, int, int]] | None:
        """(column, first offset, last offset) of what comes next; None: overtaken."""
        count = lend_batches(self.memory, self.wanted, self.cursor, self.facts, bytes_max)
        if count == OVERTAKEN:
            return None
        self.wanted[W_NEXT] = self.wanted[W_AFTER]
        fields = (F_ROW, B_BASE_OFFSET, B_LAST_OFFSET)
        return list(zip(*(self.facts[field, :count].tolist() for field in fields), strict=True))


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_batches_come_in_the_order_of_the_log_and_only_once(writer: Writer) -> None:
    reader = Reader(writer)
    assert reader.place() == [W_HERE] * 3
    for slot in (0, 2, 0):
        writer.append(slot)
    assert reader.lend() == []
    writer.show(0, 2)
    assert reader.lend() == [(0, 0, 1), (2, 0, 1), (0, 2, 3)]
    assert reader.lend() == []


def test_records_that_are_not_visible_hold_up_their_partition_only(writer: Writer) -> None:
    reader = Reader(writer)
    reader.place()
    for slot in (0, 1, 0, 1):
        writer.append(slot)
    writer.show(1)
    assert reader.lend() == [(1, 0, 1), (1, 2, 3)]
    writer.append(1)
    writer.show(0, 1)
    assert reader.lend() == [(0, 0, 1), (0, 2, 3), (1, 4, 5)]


def test_other_partitions_are_passed_over_and_a_piece_has_its_bounds(writer: Writer) -> None:
    reader = Reader(writer, NUMBERS[1:2])
    reader.place()
    for slot in (0, 1, 2, 1, 1):
        writer.append(slot)
    writer.show(0, 1, 2)
    assert reader.lend(bytes_max=1) == [(0, 0, 1)]
    reader.facts = reader.facts[:, :1]
    assert reader.lend() == [(0, 2, 3)]
    assert reader.lend() == [(0, 4, 5)]


def test_lending_from_inside_a_batch_gives_the_start_within_it(writer: Writer) -> None:
    reader = Reader(writer, NUMBERS[:1])
    for _ in range(3):
        writer.append(0, records=3)
    writer.show(0)
    reader.wanted[W_NEXT] = 4
    assert reader.place() == [W_HERE]
    assert reader.lend() == [(0, 3, 5), (0, 6, 8)]
    assert reader.facts[F_START, :2].tolist() == [4, 6]


def test_a_marker_takes_its_offset_and_gives_no_batch(writer: Writer) -> None:
    reader = Reader(writer, NUMBERS[:1])
    reader.place()
    writer.append(0)
    writer.append(0, records=1, attributes=32)
    writer.append(0)
    writer.show(0)
    assert reader.lend() == [(0, 0, 1), (0, 3, 4)]


def test_committed_records_end_before_an_open_transaction(writer: Writer) -> None:
    reader = Reader(writer, NUMBERS[:2])
    reader.cursor[CURSOR_BOUND] = READ_COMMITTED
    reader.place()
    for slot in (0, 0, 1, 0):
        writer.append(slot)
    writer.show(0, 1)
    rows = writer.memory.partitions
    rows[0, words.P_LAST_STABLE], rows[1, words.P_LAST_STABLE] = 2, 2
    assert reader.lend() == [(0, 0, 1), (1, 0, 1)]
    assert reader.lend() == []
    rows[0, words.P_LAST_STABLE] = 6
    assert reader.lend() == [(0, 2, 3), (0, 4, 5)]


def test_a_partition_is_away_up_to_its_last_aborted_records(writer: Writer) -> None:
    reader = Reader(writer, NUMBERS[:1])
    reader.cursor[CURSOR_BOUND] = READ_COMMITTED
    reader.place()
    writer.append(0)
    writer.append(0)
    writer.show(0)
    row = writer.memory.partitions[0]
    row[words.P_LAST_STABLE], row[words.P_ABORTED_END] = 4, 3
    assert reader.lend() == []
    assert reader.cursor[CURSOR_AWAY]
    assert reader.place() == [W_AWAY]
    reader.wanted[W_NEXT, 0], reader.wanted[W_STATE, 0] = 3, W_SEEKING
    assert reader.place() == [W_HERE]
    assert reader.lend() == [(0, 2, 3)]
    reader.wanted[W_NEXT, 0], reader.wanted[W_STATE, 0] = 0, W_SEEKING
    reader.cursor[CURSOR_BOUND] = READ_UNCOMMITTED
    assert reader.place() == [W_HERE]


def test_a_partition_is_away_up_to_its_compacted_end(writer: Writer) -> None:
    """Data fault 22: the ring has a value whose tombstone is gone."""
    reader = Reader(writer, NUMBERS[:1])
    reader.place()
    writer.append(0)
    writer.append(0)
    writer.show(0)
    writer.memory.partitions[0][words.P_COMPACTED_END] = 2
    assert reader.lend() == []
    assert reader.cursor[CURSOR_AWAY]
    assert reader.place() == [W_AWAY]
    reader.wanted[W_NEXT, 0], reader.wanted[W_STATE, 0] = 2, W_SEEKING
    assert reader.place() == [W_HERE]
    assert reader.lend() == [(0, 2, 3)]


def test_a_partition_is_away_below_its_leadership_and_where_another_log_leads_it(
    writer: Writer,
) -> None:
    reader = Reader(writer, NUMBERS[:1])
    writer.append(0)
    writer.append(0)
    writer.show(0)
    row = writer.memory.partitions[0]
    row[words.P_LED_FROM] = 2
    assert reader.place() == [W_AWAY]
    reader.wanted[W_NEXT, 0], reader.wanted[W_STATE, 0] = 2, W_SEEKING
    assert reader.place() == [W_HERE]
    row[words.P_FLAGS] |= words.FLAG_TAIL
    assert reader.lend() == []
    assert reader.place() == [W_AWAY]


def test_a_transaction_that_stays_open_does_not_have_everything_looked_at_again() -> None:
    writer = Writer(ring_bytes=1 << 21)
    reader = Reader(writer, NUMBERS[:2])
    reader.cursor[CURSOR_BOUND] = READ_COMMITTED
    reader.place()
    writer.append(0)
    rows = writer.memory.partitions
    for _ in range(LOOKED_AHEAD_MAX):
        writer.append(1, records=1)
    writer.show(0, 1)
    rows[0, words.P_LAST_STABLE], rows[1, words.P_LAST_STABLE] = 0, rows[1, words.P_LOG_END]
    while reader.lend(bytes_max=1 << 30):
        assert not reader.cursor[CURSOR_AWAY] or reader.wanted[W_STATE].tolist() == [W_AWAY, W_HERE]
    assert reader.wanted[W_STATE].tolist() == [W_AWAY, W_HERE]
    assert reader.wanted[W_NEXT, 1] == LOOKED_AHEAD_MAX


def test_a_partition_is_away_until_the_ring_has_its_next_records(writer: Writer) -> None:
    for _ in range(40):
        writer.append(0, value=b"x" * 500)
    writer.show(0)
    reader = Reader(writer, NUMBERS[:2])
    assert reader.place() == [W_AWAY, W_HERE]
    reader.wanted[W_NEXT, 0], reader.wanted[W_STATE, 0] = 70, W_SEEKING
    assert reader.place() == [W_HERE, W_HERE]
    assert [first for _, first, _ in reader.lend() or ()] == [70, 72, 74, 76, 78]
    reader.wanted[W_NEXT, 0], reader.wanted[W_STATE, 0] = 81, W_SEEKING
    assert reader.place() == [W_AWAY, W_HERE], "an offset beyond the end is not for the ring to say"


def test_a_lap_is_noticed_before_and_after(writer: Writer) -> None:
    reader = Reader(writer)
    reader.place()
    writer.append(0)
    writer.show(0)
    assert reader.lend() == [(0, 0, 1)]
    lent = int(reader.facts[F_POSITION, 0])
    assert oldest_position(reader.memory) <= lent
    writer.append(1)
    for _ in range(40):
        writer.append(0, value=b"x" * 500)
    writer.show(0, 1)
    assert oldest_position(reader.memory) > lent
    assert reader.lend() is None
    assert reader.place() == [W_AWAY, W_AWAY, W_HERE]


def test_a_partition_overwritten_before_it_was_visible_is_away(writer: Writer) -> None:
    for _ in range(2):
        writer.append(0)
    reader = Reader(writer, NUMBERS[:2])
    assert reader.place() == [W_HERE, W_HERE]
    for _ in range(40):
        writer.append(1, value=b"x" * 500)
    assert reader.lend() is None
    reader.wanted[W_STATE] = W_SEEKING
    assert reader.place() == [W_AWAY, W_AWAY]


def test_a_shard_that_starts_anew_has_readers_look_again(writer: Writer) -> None:
    reader = Reader(writer)
    writer.memory.words[words.WORD_GENERATION] = 5
    assert reader.lend() is None
    reader.place()
    writer.memory.partitions[[0, 1]] = writer.memory.partitions[[1, 0]]
    writer.append(1)
    writer.show(1)
    assert reader.lend() == [(0, 0, 1)]
    writer.memory.partitions[1] = 0
    assert reader.lend() == []


def test_below_the_start_of_a_log_there_is_nothing(writer: Writer) -> None:
    for _ in range(2):
        writer.append(0)
    writer.show(0)
    writer.memory.partitions[0, words.P_LOG_START] = 2
    reader = Reader(writer, NUMBERS[:1])
    assert reader.place() == [W_AWAY]
    reader.wanted[W_NEXT], reader.wanted[W_STATE] = 2, W_SEEKING
    assert reader.place() == [W_HERE]


def test_an_entry_that_points_outside_is_not_followed(writer: Writer) -> None:
    reader = Reader(writer, NUMBERS[:1])
    reader.place()
    writer.append(0)
    writer.show(0)
    for column, value in (("bytes", RING_BYTES), ("bytes", -1), ("position", -64)):
        kept = int(writer.memory.column(column)[0])
        writer.memory.column(column)[0] = value
        assert reader.lend() is None
        writer.memory.column(column)[0] = kept
    assert reader.lend() == [(0, 0, 1)]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("large"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("show"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("read"), st.sampled_from([1, 200, 1 << 20]), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@example([("large", 0, 1), ("large", 0, 1), ("large", 1, 4), ("large", 1, 2), ("show", 0, 0)])
@given(_STEPS)
def test_lent_offsets_are_contiguous_and_below_the_limit(
    steps: list[tuple[str, int, int]],
) -> None:
    writer = Writer()
    reader = Reader(writer)
    reader.place()
    next_offsets = [0, 0, 0]
    for step, number, count in [*steps, ("read", 1 << 20, 0)]:
        if step == "show":
            writer.show(number)
        elif step != "read":
            writer.append(number, count, bytes(1500 if step == "large" else 1))
        else:
            read(writer, reader, next_offsets, number)
    while read(writer, reader, next_offsets, 1 << 20):
        pass
    assert next_offsets == writer.memory.partitions[:3, words.P_HIGH_WATERMARK].tolist()


def read(writer: Writer, reader: Reader, next_offsets: list[int], bytes_max: int) -> int:
    """Read on, taking from elsewhere what is away; how many batches the ring gave."""
    lent = reader.lend(bytes_max)
    if lent is None:
        reader.wanted[W_STATE][reader.wanted[W_STATE] == W_HERE] = W_SEEKING
    for row, first, last in lent or ():
        assert first == next_offsets[row]
        assert last < writer.memory.partitions[row, words.P_HIGH_WATERMARK]
        next_offsets[row] = last + 1
    for row in np.flatnonzero(reader.wanted[W_STATE] == W_AWAY).tolist():
        next_offsets[row] = int(writer.memory.partitions[row, words.P_HIGH_WATERMARK])
        reader.wanted[W_NEXT, row] = next_offsets[row]
        reader.wanted[W_STATE, row] = W_SEEKING
    reader.place()
    return len(lent or ())
