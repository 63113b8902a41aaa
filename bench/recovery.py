"""How long a start takes after kill -9 with a full WAL: `python -m bench.recovery [GiB] [folder]`.

Writes so much through a log of 64 MiB segments, lets the process die, and opens it again in three
states: as it was, with the tables of the newest segments and the checkpoint behind (background jobs
that were not finished), and after a power loss (nothing is believed, all is scanned).
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from shm.kernels.base.frames import frame_bytes
from shm.kernels.base.words import DURABILITY_OS
from shm.kernels.log.append import append_batch, make_room
from shm.segment import LogMemory
from smq.log.files.background import InlineBackground
from smq.log.files.disk import OsDisk
from smq.log.files.segment_files import WalLimits
from smq.log.log import Log
from smq.log.partitions import PartitionSettings
from smq.log.recovery import open_log
from smq.log.sync import InlineSyncer
from smq.wire.records import Record, write_batch

MiB, GiB = 1 << 20, 1 << 30
SEGMENT_BYTES, RING_BYTES, PARTITIONS = 64 * MiB, 256 * MiB, 1000
BATCH_BYTES = 16 * 1024
BOOT_ID = b"a boot of bench."


def opened(directory: Path, generation: int, boot_id: bytes = BOOT_ID) -> tuple[Log, int, float]:
    """A log, the bytes it scanned to start, and the seconds that took."""
    memory = LogMemory.in_process(0, RING_BYTES, SEGMENT_BYTES, 4096)
    disk = OsDisk()
    began = time.perf_counter()
    log, recovered = open_log(
        memory,
        directory,
        disk,
        InlineSyncer(memory, disk),
        InlineBackground(),
        limits=WalLimits(SEGMENT_BYTES),
        generation=generation,
        boot_id=boot_id,
        producers_key=bytes(range(16)),
        now_ms=1,
    )
    return log, recovered.scanned_bytes, time.perf_counter() - began


def fill(directory: Path, total_bytes: int) -> None:
    """Write so much into partitions in turn, then end without a goodbye."""
    log, _, _ = opened(directory, 0)
    settings = PartitionSettings(DURABILITY_OS, MiB)
    slots = [log.adopt(number, settings) for number in range(1, PARTITIONS + 1)]
    value = os.urandom(1024)
    batch = write_batch([Record(i, 1, None, value, ()) for i in range(BATCH_BYTES // 1024)])
    data = np.frombuffer(bytearray(batch), np.uint8)
    count = 0
    while log.tail < total_bytes:
        for _ in range(64):
            while not make_room(log.memory.memory, frame_bytes(len(data))):
                log.filing.make_room({DURABILITY_OS})
                log.write()
            slot = slots[count % PARTITIONS]
            append_batch(log.memory.memory, log.links, slot, data, 0, len(data), 1, 1)
            count += 1
        log.write()
        log.publish(DURABILITY_OS)
    assert log.failed is None
    sys.stdout.write(f"{log.tail / GiB:.2f} GiB in {len(log.wal.segments)} segments\n")
    sys.stdout.flush()
    os._exit(0)


def measure(directory: Path, title: str, generation: int, boot_id: bytes = BOOT_ID) -> None:
    """Open the log and say how long that took."""
    log, scanned, seconds = opened(directory, generation, boot_id)
    assert log.failed is None
    log.wal.close()
    sys.stdout.write(f"{title:<42} {seconds:6.2f} s   {scanned / MiB:7.0f} MiB scanned\n")
    sys.stdout.flush()


def main() -> None:
    """Fill, die, open."""
    total_bytes = int(float(sys.argv[1] if len(sys.argv) > 1 else 2) * GiB)
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        directory = Path(name) / "log"
        pid = os.fork()
        if pid == 0:
            fill(directory, total_bytes)
        os.waitpid(pid, 0)
        opened(Path(name) / "warm", 0)[0].wal.close()
        checkpoint = (directory / "checkpoint").read_bytes()
        measure(directory, "after kill -9", 1)
        for path in sorted(directory.glob("*.index"))[-4:]:
            path.unlink()
        (directory / "checkpoint").write_bytes(checkpoint)
        measure(directory, "four tables missing", 2)
        measure(directory, "after a power loss", 3, b"another boot....")


if __name__ == "__main__":
    main()
