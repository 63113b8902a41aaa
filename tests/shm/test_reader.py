"""A log read from another process: at the addresses of the mapping, and never taken for intact."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from shm.kernels.base import words
from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.base.frames import frame_bytes
from shm.kernels.log.append import append_batch, claim, make_room
from shm.reader import LogReader
from shm.segment import LogMemory
from smq.wire.records import Record, write_batch

NUMBER = 7
RING_BYTES = 1 << 16


class Writer:
    """A log's only writer, as a shard is: one partition, slot 0."""

    def __init__(self) -> None:
        self.memory = LogMemory.create(0, RING_BYTES, RING_BYTES // 2, 4)
        self.memory.partitions[0, words.P_NUMBER] = NUMBER
        self.memory.partitions[0, words.P_FLAGS] = words.FLAG_IN_USE
        self.memory.partitions[0, words.P_LAST_ENTRY] = -1
        self.memory.words[words.WORD_PARTITION_COUNT] = 1
        self.links = np.full((LINK_COLUMNS, self.memory.layout.index_capacity), -1, np.int64)

    def append(self, value: bytes) -> int:
        batch = write_batch([Record(0, 1, b"key", value, ())])
        data = np.frombuffer(bytearray(batch), np.uint8)
        self.memory.words[words.WORD_WRITTEN] = self.memory.words[words.WORD_TAIL]
        self.memory.words[words.WORD_INDEX_KEEP] = self.memory.words[words.WORD_INDEX_TAIL]
        assert make_room(self.memory.memory, frame_bytes(len(data)))
        append_batch(self.memory.memory, self.links, 0, data, 0, len(data), 0, 0)
        return len(data)

    def show(self) -> None:
        row = self.memory.partitions[0]
        row[words.P_HIGH_WATERMARK] = row[words.P_LOG_END]


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def reader(writer: Writer) -> LogReader:
    return LogReader(LogMemory.attach(writer.memory.fd))


def test_index_and_frames_are_arrow_at_the_addresses_of_the_mapping(
    writer: Writer, reader: LogReader
) -> None:
    size = writer.append(b"x" * 100)
    (batch,) = reader.snapshot().record_batches()
    batch.validate(full=True)
    start = reader.memory.memory.ctypes.data
    end = start + len(reader.memory.memory)
    for name in batch.schema.names:
        buffer = batch.column(name).buffers()[-1]
        assert start <= buffer.address < end, name
    assert batch.column("frame").buffers()[-1].address == reader.memory.ring.ctypes.data
    frame = batch.column("frame")[0].as_py()
    assert len(frame) == size
    assert b"x" * 100 in frame


def test_only_what_is_below_the_high_watermark_is_visible(
    writer: Writer, reader: LogReader
) -> None:
    writer.append(b"shown")
    writer.show()
    writer.append(b"appended")
    places = list(reader.visible(reader.snapshot(), NUMBER))
    assert [place.base_offset for place in places] == [0]
    assert b"shown" in places[0].data.tobytes()


def test_a_lap_of_the_ring_makes_a_snapshot_not_intact(writer: Writer, reader: LogReader) -> None:
    writer.append(b"first")
    snapshot = reader.snapshot()
    assert snapshot.is_intact()
    for _ in range(RING_BYTES // 1024 + 1):
        writer.append(b"y" * 1000)
    assert not snapshot.is_intact()
    assert reader.snapshot().is_intact()


def test_a_frame_about_to_be_overwritten_is_not_intact_before_a_byte_of_it_changes(
    writer: Writer, reader: LogReader
) -> None:
    writer.append(b"first")
    snapshot = reader.snapshot()
    before = next(reader.places(snapshot, NUMBER)).data.tobytes()
    claim(writer.memory.memory, RING_BYTES + 64)
    assert not snapshot.is_intact()
    assert next(reader.places(snapshot, NUMBER)).data.tobytes() == before


def test_entries_wrap_into_two_record_batches(writer: Writer, reader: LogReader) -> None:
    capacity = reader.memory.layout.index_capacity
    for _ in range(capacity + 3):
        writer.append(b"z")
    pieces = reader.snapshot().record_batches()
    assert len(pieces) == 2
    bases = [n for piece in pieces for n in piece.column("base_offset").to_pylist()]
    assert bases == list(range(bases[0], capacity + 3))


def test_another_process_sees_the_frames_as_they_come(writer: Writer) -> None:
    writer.append(b"seen from afar")
    writer.show()
    program = (
        "import json, os, sys\n"
        "from shm.reader import LogReader\n"
        "from shm.segment import LogMemory\n"
        f"fd = os.open('/proc/{os.getpid()}/fd/{writer.memory.fd}', os.O_RDONLY)\n"
        "reader = LogReader(LogMemory.attach(fd))\n"
        "def look():\n"
        "    snapshot = reader.snapshot()\n"
        f"    places = list(reader.visible(snapshot, {NUMBER}))\n"
        "    values = [place.data.tobytes()[-20:].hex() for place in places]\n"
        "    print(json.dumps([values, snapshot.is_intact()]), flush=True)\n"
        "look()\n"
        "sys.stdin.readline()\n"
        "look()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        values, is_intact = json.loads(process.stdout.readline())
        assert is_intact
        assert b"seen from afar".hex() in values[0]
        writer.append(b"and another one")
        writer.show()
        process.stdin.write("\n")
        process.stdin.flush()
        values, is_intact = json.loads(process.stdout.readline())
        assert b"and another one".hex() in values[1]
