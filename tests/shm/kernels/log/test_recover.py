"""Reading a log back gives what was written, up to the first wrong byte."""

import random
import struct
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base import words
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.base.frames import batch_crc_is_good, frame_is_good, write_frame_header
from shm.kernels.log.index import find_entry
from shm.kernels.log.producers import H_COUNT, R_STATE_END, producer_row
from shm.kernels.log.recover import (
    S_AT,
    S_BASE_OFFSET,
    S_BYTES,
    S_EPOCH,
    S_GENERATION,
    S_KIND,
    S_LEVEL,
    S_PARTITION,
    S_SYNCED,
    SCAN_COLUMNS,
    find_frame,
    header_generation,
    next_frame,
    replay_frames,
    scan_frames,
)
from shm.kernels.twin.log import PlainFrame, scan
from shm.kernels.twin.produce import read_header
from shm.producer_table import new_producers
from shm.segment import LogMemory
from tests.oracle.batches import batch
from tests.shm.kernels.rig import GENERATION, RING_BYTES, SEGMENT_BYTES, SLOTS, Rig, request_of


def written() -> Rig:
    """A log of some segments, with padding, and producers."""
    rig = Rig()
    for i in range(40):
        producer = (i % 3, 0, i // 3) if i % 2 else (-1, -1, -1)
        records = batch(b"v" * (7 * i), b"w", first_ms=1_700_000_000_000 - i, producer=producer)
        rig.receive(request_of([("a", [(i % 3, records)])]))
    rig.drain()
    return rig


WRITTEN = written()
WAL = np.frombuffer(WRITTEN.wal, np.uint8)
FRAMES = WRITTEN.frames()


def scanned(
    data: np.ndarray, first: int, generation: int, room: int = 200
) -> tuple[np.ndarray, int, int]:
    rows = np.zeros((room, SCAN_COLUMNS), np.int64)
    count, at, last = scan_frames(data, 0, len(data), first, generation, rows, new_sums(len(data)))
    return rows[:count], int(at), int(last)


def found(data: np.ndarray, at: int, generation: int) -> int:
    return int(find_frame(data, at, len(data), 0, generation, new_sums(len(data))))


def row_of(frame: PlainFrame) -> list[int]:
    row = [0] * SCAN_COLUMNS
    row[S_AT], row[S_BYTES], row[S_KIND] = frame.position, len(frame.content), frame.kind
    row[S_GENERATION] = frame.generation
    row[S_PARTITION], row[S_SYNCED], row[S_LEVEL] = frame.partition, frame.synced, frame.level
    if frame.kind == words.FRAME_KIND_BATCH:
        header = read_header(frame.content)
        row[S_EPOCH], row[S_BASE_OFFSET] = header.leader_epoch, header.base_offset
    return row


def test_a_scan_gives_each_frame_and_ends_behind_the_last() -> None:
    rows, at, generation = scanned(WAL, 0, 0)
    assert rows.tolist() == [row_of(frame) for frame in FRAMES]
    assert {frame.kind for frame in FRAMES} == {words.FRAME_KIND_BATCH, words.FRAME_KIND_PADDING}
    assert (at, generation) == (len(WAL), GENERATION)
    ends = [next_frame(WAL, frame.position) for frame in FRAMES]
    assert ends == [frame.position for frame in FRAMES[1:]] + [len(WAL)]


def test_a_scan_goes_on_where_its_rows_were_full() -> None:
    rows, at, _ = scanned(WAL, 0, 0, room=5)
    assert (len(rows), at) == (5, FRAMES[5].position)
    more = np.zeros((200, SCAN_COLUMNS), np.int64)
    count, end, _ = scan_frames(WAL, at, len(WAL), 0, 0, more, new_sums(len(WAL)))
    assert (count, end) == (len(FRAMES) - 5, len(WAL))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(WAL) - 1), st.integers(0, 7), st.integers(0, 200))
def test_a_scan_of_damaged_and_cut_bytes_ends_where_the_twins_does(
    at: int, bit: int, cut: int
) -> None:
    data = WAL.copy()
    data[at] ^= 1 << bit
    data = data[: len(data) - cut]
    frames, end, generation = scan(data.tobytes(), 0, 0)
    rows, stopped, last = scanned(data, 0, 0)
    assert (len(rows), stopped, last) == (len(frames), end, generation)


def test_frames_of_another_position_or_an_earlier_generation_are_not_taken() -> None:
    assert scanned(WAL, 64, 0)[1] == 0
    assert scanned(WAL, 0, GENERATION)[1] == len(WAL)
    rows, at, generation = scanned(WAL, 0, GENERATION + 1)
    assert (len(rows), at, generation) == (0, 0, GENERATION + 1)


def test_behind_a_damaged_frame_the_next_good_one_is_found() -> None:
    for broken, after in pairwise(FRAMES):
        data = WAL.copy()
        data[broken.position] ^= 1
        assert found(data, broken.position, GENERATION) == after.position
    assert found(WAL, FRAMES[-1].position, 0) == -1
    assert found(WAL, 0, GENERATION + 1) == -1


def crafted(chance: random.Random, segment_bytes: int) -> np.ndarray:
    """Garbage with frames at any places, of any kinds and sizes, also within each other, of which
    some have a wrong check or CRC."""
    data = np.frombuffer(chance.randbytes(segment_bytes), np.uint8).copy()
    places = chance.sample(range(0, segment_bytes - 128, 64), 80)
    for at in sorted(places, reverse=True):
        room = segment_bytes - at - 48
        size = chance.choice([chance.randint(61, min(room, 900)), room - room % 64, room - 64])
        size, start = max(size, 61), at + 48
        kind = chance.choice([words.FRAME_KIND_BATCH, words.FRAME_KIND_PADDING, 3, 1 << 30 | 5])
        if kind == words.FRAME_KIND_PADDING:  # It ends where a frame may begin.
            size -= (48 + size) % 64
        if kind == words.FRAME_KIND_BATCH and start + size <= segment_bytes:
            data[start : start + 27] = 0
            data[start + words.BATCH_LENGTH_AT :][:4] = list((size - 12).to_bytes(4))
            data[start + words.BATCH_MAGIC_AT] = 2
            crc = int(crc32c(data, start + 21, start + size)) ^ chance.choice([0, 0, 1])
            data[start + words.BATCH_CRC_AT :][:4] = list(crc.to_bytes(4))
        if start + size <= segment_bytes:
            stamps = (0, chance.choice([1, 2, 3]))
            write_frame_header(data, at, at, stamps, size, 0, kind, 0)
            data[at + 5] ^= chance.choice([0, 0, 1])
    return data


@pytest.mark.parametrize("seed", range(20))
def test_a_search_by_sums_finds_what_reading_each_candidate_finds(seed: int) -> None:
    chance = random.Random(seed)
    data = crafted(chance, 1 << 16)
    end, sums, rows = len(data), new_sums(len(data)), np.zeros((1, SCAN_COLUMNS), np.int64)
    good = [at for at in range(0, end, 64) if frame_is_good(data, at, end, at)]
    assert len(good) > 20
    for at in range(0, end, 64):
        following = next((each for each in good if each > at and stamp(data, each) >= 2), -1)
        assert find_frame(data, at, end, 0, 2, sums) == following
        is_good = at in good and stamp(data, at) >= 2
        if is_good and data[at + words.FRAME_KIND_AT] == words.FRAME_KIND_BATCH:
            size = int(data[at + words.FRAME_BYTES_AT :][:4].view(np.int32)[0])
            is_good = bool(batch_crc_is_good(data, at + 48, size))
        assert scan_frames(data, at, end, 0, 2, rows, sums)[0] == is_good


def stamp(data: np.ndarray, at: int) -> int:
    return int(data[at + words.FRAME_GENERATION_AT])


@pytest.mark.parametrize("kind", [words.FRAME_KIND_BATCH, 1 << 30 | 5])
def test_candidates_as_long_as_the_rest_do_not_take_the_square_of_the_bytes(kind: int) -> None:
    """Reading each of them took half a minute at 4 MiB, and hours for a segment.

    The check of an unknown kind covers all of it; a batch's header may be right, and its CRC wrong.
    """
    data = np.zeros(8 << 20, np.uint8)
    last = FRAMES[0]._replace(position=len(data) - FRAMES[0].frame_bytes)
    data[last.position :] = np.frombuffer(last.encode(), np.uint8)
    step = 64 if kind != words.FRAME_KIND_BATCH else 128
    for at in range(0, last.position - 128, step):
        size = (last.position if at % 256 else len(data)) - at - 48
        if kind == words.FRAME_KIND_BATCH:
            data[at + 48 + words.BATCH_LENGTH_AT :][:4] = list((size - 12).to_bytes(4))
            data[at + 48 + words.BATCH_MAGIC_AT] = 2
            write_frame_header(data, at, at, (0, GENERATION), size, 0, kind, 0)
        else:
            header = (words.FRAME_MAGIC, 7, at, 0, GENERATION, size, 0, kind, 0)
            struct.pack_into("<IIqqIiIiq", data.data, at, *header)
    at, sums, rows = 0, new_sums(len(data)), np.zeros((1, SCAN_COLUMNS), np.int64)
    started_s = time.monotonic()
    while at != last.position:
        assert scan_frames(data, at, len(data), 0, 0, rows, sums)[0] == 0
        at = find_frame(data, at, len(data), 0, 0, sums)
        assert at > 0
    assert time.monotonic() - started_s < 30


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(sorted({len(f.content): f for f in FRAMES}.values())), max_size=8),
    st.data(),
)
def test_frames_of_unknown_kinds_are_scanned_as_the_twin_does_and_not_replayed(
    batches: list[PlainFrame], data: st.DataObject
) -> None:
    """Each is whole or damaged, of any size, between any others."""
    wal, frames = b"", list[PlainFrame]()
    for known in batches:
        kind = data.draw(st.sampled_from([3, words.FRAME_KIND_SKIPPABLE | 1, 2**31 - 1]))
        content = data.draw(st.binary(max_size=200))
        unknown = PlainFrame(len(wal), 0, GENERATION, 2**32 - 1, kind, 0, content)
        frames += unknown, known._replace(position=len(wal) + unknown.frame_bytes)
        wal += unknown.encode() + frames[-1].encode()
    if wal:
        at = data.draw(st.integers(0, 8 * len(wal) - 1))
        flipped = bytearray(wal)
        flipped[at // 8] ^= data.draw(st.booleans()) << at % 8
        wal = bytes(flipped)
    good, end, generation = scan(wal, 0, 0)
    memory = np.frombuffer(wal, np.uint8)
    rows, stopped, last = scanned(memory, 0, 0)
    assert rows.tolist() == [row_of(frame) for frame in good]
    assert (stopped, last) == (end, generation)
    fresh, slots = Fresh(), np.full(len(rows), -1, np.int64)
    place = np.array([0, len(rows), 0, 0, 5], np.int64)
    args = fresh.log.memory, fresh.links, fresh.producers, memory, rows, slots, place
    replay_frames(*args)
    assert not fresh.log.partitions[:, words.P_LOG_END].any()
    assert fresh.producers[0, H_COUNT] == 0


def test_a_header_tells_its_generation_if_all_of_it_is_good() -> None:
    for frame in FRAMES:
        data = WAL[
            frame.position : frame.position + words.FRAME_HEADER_BYTES + words.BATCH_HEADER_BYTES
        ].copy()
        if len(data) < words.FRAME_HEADER_BYTES + words.BATCH_HEADER_BYTES:
            assert header_generation(data, frame.position) == -1
            continue
        assert header_generation(data, frame.position) == GENERATION
        assert header_generation(data, frame.position + 64) == -1
        for bad in range(words.FRAME_HEADER_BYTES):
            data[bad] ^= 1
            assert header_generation(data, frame.position) == -1
            data[bad] ^= 1


class Fresh:
    """The memory of a log that is being recovered."""

    def __init__(self) -> None:
        self.log = LogMemory.in_process(0, RING_BYTES, SEGMENT_BYTES, 8)
        self.log.partitions[:, words.P_LAST_ENTRY] = -1
        self.slots = np.full(30, -1, np.int64)
        for number, slot in SLOTS.items():
            self.log.partitions[slot, words.P_NUMBER] = number
            self.slots[number] = slot
        self.links = np.full((LINK_COLUMNS, self.log.layout.index_capacity), -1, np.int64)
        self.producers = new_producers(1024, b"another key, not")

    def replay(self, producers_from: int = 0) -> None:
        rows, _, _ = scanned(WAL, 0, 0)
        place = np.array([0, len(rows), 0, producers_from, 5], np.int64)
        args = self.log.memory, self.links
        slots = self.slots[np.minimum(rows[:, S_PARTITION], len(self.slots) - 1)]
        replay_frames(*args, self.producers, WAL, rows, slots, place)


def test_replaying_gives_the_partitions_index_and_producers_that_were() -> None:
    fresh = Fresh()
    fresh.replay()
    columns = [
        words.P_NUMBER,
        words.P_LOG_END,
        words.P_UNSEALED_BYTES,
        words.P_MAX_TIMESTAMP,
        words.P_LAST_ENTRY,
    ]
    slots = list(SLOTS.values())
    before, after = WRITTEN.log, fresh.log
    assert (
        after.partitions[slots][:, columns].tolist()
        == before.partitions[slots][:, columns].tolist()
    )
    for name in before.layout.index_columns():
        assert (after.column(name) == before.column(name)).all()
    assert (fresh.links == WRITTEN.links).all()
    assert fresh.producers[0, H_COUNT] == WRITTEN.producers[0, H_COUNT] > 0
    for producer_id in range(3):
        for number in SLOTS:
            known = fresh.producers[producer_row(fresh.producers, number, producer_id)].copy()
            row = producer_row(WRITTEN.producers, number, producer_id)
            known[5] = WRITTEN.producers[row, 5]  # When it was last seen is the replay's time.
            assert row == 0 or (known == WRITTEN.producers[row])[:R_STATE_END].all()


def test_replaying_twice_moves_no_partitions_end_twice() -> None:
    fresh = Fresh()
    fresh.replay()
    ends = fresh.log.partitions[:, words.P_LOG_END].tolist()
    fresh.replay()
    assert fresh.log.partitions[:, words.P_LOG_END].tolist() == ends


def test_frames_of_a_topic_that_is_gone_are_passed_over() -> None:
    fresh = Fresh()
    fresh.slots[11] = -1
    fresh.replay()
    assert fresh.log.partitions[SLOTS[11], words.P_LOG_END] == 0
    assert fresh.log.partitions[SLOTS[10], words.P_LOG_END] > 0
    assert find_entry(fresh.log.memory, fresh.links, SLOTS[11], 0) == -1


def test_producers_known_from_a_checkpoint_are_not_noted_again() -> None:
    fresh = Fresh()
    fresh.replay(producers_from=len(WAL))
    assert fresh.producers[0, H_COUNT] == 0
