"""Driving a log without a shard: start, append, show, read, crash."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.frames import frame_bytes, write_frame_header
from shm.kernels.log.append import append_rows, claim, make_room, place_of
from shm.kernels.log.plan import new_plan, row_at
from shm.segment import LogMemory
from smq.log.files.background import Background, InlineBackground
from smq.log.files.disk import Disk, OsDisk
from smq.log.files.segment_files import WalLimits
from smq.log.files.start_reads import Pause
from smq.log.log import Log
from smq.log.own_tries import RETRY_MS
from smq.log.partitions import PartitionSettings
from smq.log.recovery import Recovered, open_log
from smq.log.start_rows import Existing
from smq.log.sync import InlineSyncer, Syncer
from smq.wire.records import Record, read_batches, write_batch

MEMORY, OS, DISK = words.DURABILITY_MEMORY, words.DURABILITY_OS, words.DURABILITY_DISK
LEVELS = (MEMORY, OS, DISK)
SEGMENT_BYTES, RING_BYTES = 4096, 16384
PARTITIONS_MAX = 32
NOW_MS = 1_000_000
PRODUCERS_KEY = bytes(range(16))
BOOT, OTHER_BOOT = b"a boot of tests.", b"another boot ..."


def settings(level: int) -> PartitionSettings:
    return PartitionSettings(level, 1 << 20)


class Life(NamedTuple):
    """A log from its start to its end."""

    log: Log
    recovered: Recovered


started: list[Log] = []
"""The logs of the test that runs; conftest.py closes them."""


class Refused(Exception):
    """The append was answered with an error code."""


def memory_of(
    ring_bytes: int = RING_BYTES,
    segment_bytes: int = SEGMENT_BYTES,
    partitions: int = PARTITIONS_MAX,
) -> LogMemory:
    return LogMemory.in_process(0, ring_bytes, segment_bytes, partitions)


def start(  # noqa: PLR0913
    directory: Path,
    *,
    generation: int = 0,
    boot: bytes = BOOT,
    memory: LogMemory | None = None,
    disk: Disk | None = None,
    background: Background | None = None,
    syncer: Syncer | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    levels: dict[int, int] | None = None,
    bytes_max: int = words.SPACE_UNLIMITED,
    keep_bytes_max: int = 0,
    pause: Pause | None = None,
    existing: Existing | None = None,
) -> Life:
    """Open a log and adopt partitions with their durabilities."""
    disk = disk or OsDisk()
    memory = memory or memory_of(segment_bytes=segment_bytes)
    log, recovered = open_log(
        memory,
        directory,
        disk,
        syncer or InlineSyncer(memory, disk),
        background or InlineBackground(),
        limits=WalLimits(segment_bytes, bytes_max, keep_bytes_max),
        generation=generation,
        boot_id=boot,
        producers_key=PRODUCERS_KEY,
        now_ms=NOW_MS,
        pause=pause,
        existing=existing,
    )
    for number, level in ({1: OS} if levels is None else levels).items():
        log.adopt(number, settings(level))
    log.invariants()
    for segment in log.wal.segments:
        if segment.index is not None:
            segment.index.invariants()
    started.append(log)
    return Life(log, recovered)


def replace_disk(log: Log, disk: Disk) -> None:
    """Give a log another disk from now on; its syncer keeps the old one."""
    log.disk = log.wal._disk = log.filing._disk = log.freeing._disk = disk


def replace_background(log: Log, background: Background) -> None:
    """Have a log's jobs run elsewhere from now on."""
    log.background = log.wal._background = background
    log.health._background = log.filing._background = log.freeing._background = background


def batch(*values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    records = [Record(i, 1000 + i, None, value, ()) for i, value in enumerate(values)]
    return bytes(
        write_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


_plan = new_plan(0, 0, 1)


def append(log: Log, number: int, data: bytes) -> int:
    """Append one batch; its base offset. Nothing is written but to make room. Raises Refused."""
    row = row_at(_plan, 0)
    _plan[words.HEAD_ROW_COUNT], _plan[words.HEAD_BUDGET] = 1, words.STEP_BYTES
    _plan[words.HEAD_NOW_MS] = _plan[words.HEAD_WALL_MS] = NOW_MS
    _plan[row + words.ROW_CODE] = log.number << 32 | log.partitions.slots[number]
    _plan[row + words.ROW_AT], _plan[row + words.ROW_BYTES] = 0, len(data)
    _plan[row + words.ROW_VERSION], _plan[row + words.ROW_STATE] = 9, 0
    received = np.frombuffer(bytearray(data), np.uint8)
    for _ in range(1000):
        stop = append_rows(log.memory.memory, log.links, log.producers.table, received, _plan)
        if stop == words.STOP_LOG_FULL:
            log.write()
            log.want_sync()
            show(log)
            log.filing.make_room(set(LEVELS))
        else:
            break
    else:
        raise AssertionError("the log never gets room")
    if _plan[row + words.ROW_ERROR]:
        raise Refused(int(_plan[row + words.ROW_ERROR]))
    return int(_plan[row + words.ROW_BASE_OFFSET])


def append_unknown(log: Log, kind: int, content: bytes) -> tuple[int, bytes]:
    """Append a frame as a later version may; its position, and its bytes."""
    memory = log.memory.memory
    size = int(frame_bytes(len(content)))
    while not make_room(memory, size):
        assert turn(log)
        log.filing.make_room(set(LEVELS))
    tail = log.tail
    claim(memory, tail + size)
    at = int(place_of(memory, tail))
    memory[at : at + size] = 0
    memory[at + words.FRAME_HEADER_BYTES :][: len(content)] = np.frombuffer(content, np.uint8)
    stamps = (log.words[words.WORD_SYNCED], log.words[words.WORD_GENERATION])
    write_frame_header(memory, at, tail, stamps, len(content), 2**32 - 1, kind, 0)
    log.words[words.WORD_TAIL] = tail + size
    return tail, memory[at : at + size].tobytes()


def show(log: Log) -> None:
    """Publish every level that has been reached."""
    for level in LEVELS:
        log.publish(level)


def turn(log: Log, *, syncs: bool = True) -> bool:
    """What a shard does at the end of a turn; False: the log has failed."""
    log.publish(MEMORY)
    if not log.write():
        return False
    log.publish(OS)
    if syncs:
        log.want_sync()
        log.publish(DISK)
    log.background.collect()
    log.invariants()
    return True


def wait(log: Log, ms: int) -> None:
    """Time passes, in which a log is tended."""
    first_ms = log.now_ms or 0
    for log.now_ms in range(first_ms, first_ms + ms + 1, RETRY_MS):
        log.tend()
    log.tend()  # This dates what it tried last.


def fill(log: Log, number: int = 1, count: int = 40) -> None:
    """Append batches of one record, each with a turn of its own."""
    for i in range(count):
        append(log, number, batch(b"%d" % i * 200))
        assert turn(log)


def row(log: Log, number: int = 1) -> np.ndarray:
    """A partition's row in the table."""
    table: np.ndarray = log.partitions.table
    found: np.ndarray = table[log.partitions.slots[number]]
    return found


def high_watermark(log: Log, number: int) -> int:
    return int(log.partitions.table[log.partitions.slots[number], words.P_HIGH_WATERMARK])


def read_batch(log: Log, position: int, length: int) -> memoryview:
    """A batch from ring or WAL; waits for the disk. Raises DamagedFrame."""
    view = log.view(position, length)
    if view is not None:
        return view
    run = log.first_run(np.array([(position, length)]))
    return log.batches_of(run, log.wal.read(run.position, run.length))


def read(log: Log, number: int, offset: int = 0, bytes_max: int = 1 << 30) -> dict[int, bytes]:
    """The values of all visible records from an offset on that are in ring and WAL."""
    values: dict[int, bytes] = {}
    end = high_watermark(log, number)
    while offset < end:
        found = log.find(number, offset, end, bytes_max)
        if found is None or not len(found.spans):
            break
        for position, length in found.spans.tolist():
            for each in read_batches(bytes(read_batch(log, position, length))):
                for record in each.records():
                    values[record.offset] = record.value or b""
                    offset = record.offset + 1
    return values
