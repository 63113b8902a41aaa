"""How fast segments are made and read back, in memory: `python -m bench.sealing`.

Batches of 1 MB, in chunks as the sealer gets them from a shard, become Parquet segments; then each
row group becomes batches again. All of it runs on one core, nothing touches a disk. It prints bytes
of batches and records per second of CPU time, the share of each step, and beside them the limits of
this core: to copy, check and compress the same bytes.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from shm.kernels.record.records_encode import Run, ValueRows, encode_values
from smq.model.segments import SealedPartition
from smq.sealer.decode import Piece, cut
from smq.sealer.parquet_segment import ParquetSegment
from smq.sealer.payloads import CHUNK_BYTES, payloads_of
from smq.sealer.room import Room
from smq.sealer.seal import parquet_writer

MB = 1e6
BATCH_BYTES = 1_000_000
SEGMENT_BYTES = 64 << 20
PLACE = SealedPartition("kafka", "flood", 0, 1)

T = TypeVar("T")


class Shape(NamedTuple):
    """What records look like."""

    name: str
    record_bytes: int
    random_share: float


SHAPES = (
    Shape("1 KiB, half random", 1024, 0.5),
    Shape("1 KiB, all random", 1024, 1.0),
    Shape("100 B, half random", 100, 0.5),
    Shape("100 B, all random", 100, 1.0),
)


class Clock:
    """Seconds of the processor's time by step."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    def __call__(self, step: str, action: Callable[..., T], *given: object) -> T:
        """Do it, and note how long it took."""
        begin = time.process_time()
        result = action(*given)
        self.steps[step] = self.steps.get(step, 0.0) + time.process_time() - begin
        return result

    @property
    def seconds(self) -> float:
        return sum(self.steps.values())

    def shares(self) -> str:
        """The share of each step, the largest first."""
        order = sorted(self.steps.items(), key=lambda step: -step[1])
        return ", ".join(f"{name} {took / self.seconds:.0%}" for name, took in order)


def batches_of(shape: Shape, size: int) -> list[bytes]:
    """Chunks of whole batches, as a shard hands them over; this many bytes in total."""
    chance = np.random.default_rng(1)
    records = size // shape.record_bytes
    data = np.zeros((records, shape.record_bytes), np.uint8)
    noise = int(shape.record_bytes * shape.random_share)
    data[:, :noise] = chance.integers(0, 256, (records, noise), np.uint8)
    offsets = np.arange(0, records * shape.record_bytes + 1, shape.record_bytes, dtype=np.int32)
    values = ValueRows(read_only(data.reshape(-1)), offsets, 1_700_000_000_000)
    run, out = Run(records, records, 0, 1), np.empty(2 * BATCH_BYTES, np.uint8)
    chunks, chunk, row = list[bytes](), b"", 0
    while row < records:
        row, end = encode_values(values, row, run, BATCH_BYTES, out, 0)
        if len(chunk) + end > CHUNK_BYTES:
            chunks, chunk = [*chunks, chunk], b""
        chunk += out[:end].tobytes()
    return [*chunks, chunk]


def seal(chunks: list[bytes], room: Room, clock: Clock) -> Iterator[tuple[int, int, np.ndarray]]:
    """Segments as (base offset, end offset, file); each file is valid until the next."""
    base = end = size = 0
    writer = parquet_writer(PLACE, log_append_time=False, room=room)
    for number, chunk in enumerate(chunks):
        for piece in clock("cut", _pieces, chunk):
            clock("payloads", payloads_of, piece)
            clock("write", writer.add, piece)
            end, size = piece.end_offset, size + len(piece.batches)
        if size >= SEGMENT_BYTES or number == len(chunks) - 1:
            file = read_only(clock("write", writer.finish, base, end))
            clock("checksum", crc32c, file, 0, len(file))
            yield base, end, file
            writer = parquet_writer(PLACE, log_append_time=False, room=room)
            base, size = end, 0


def _pieces(chunk: bytes) -> list[Piece]:
    return list(cut(chunk))


def read(file: np.ndarray, clock: Clock) -> int:
    """How many bytes of batches a segment gives back."""
    clock("checksum", crc32c, file, 0, len(file))
    segment = clock("open", ParquetSegment, file)
    pieces = (clock("decode", segment.batches, span).pieces for span in segment.spans)
    return sum(len(piece) for of_span in pieces for piece in of_span)


def limits(data: np.ndarray) -> str:
    """What this core does with the same bytes, at its best."""
    clock, sizes = Clock(), len(data) / MB
    room = np.empty_like(data)
    clock("copied", np.copyto, room, data)
    clock.steps.clear()
    clock("copied", np.copyto, room, data)
    clock("checked", crc32c, data, 0, len(data))
    clock("compressed", pa.Codec("zstd", 1).compress, data)
    return ", ".join(f"{name} {sizes / took:,.0f} MB/s" for name, took in clock.steps.items())


def main() -> None:
    """Seal, read back, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=512, help="of batches, of each shape")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    room = Room()
    for warm in seal(batches_of(SHAPES[1], SEGMENT_BYTES), room, Clock()):  # Kernels, Arrow.
        read(warm[2], Clock())
    for shape in SHAPES:
        chunks = batches_of(shape, int(options.mb * MB))
        size = sum(map(len, chunks))
        making, reading, files, back = Clock(), Clock(), 0, 0
        records = 0
        for _, end, file in seal(chunks, room, making):
            records = end
            files += len(file)
            back += read(file, reading)
        print(f"{shape.name}: {size / MB:,.0f} MB of batches, {files / size:.0%} in files")
        print(
            f"  sealed    {size / MB / making.seconds:,.0f} MB/s, "
            f"{records / making.seconds / 1e6:.1f} M records/s ({making.shares()})"
        )
        print(
            f"  read back {back / MB / reading.seconds:,.0f} MB/s, "
            f"{records / reading.seconds / 1e6:.1f} M records/s ({reading.shares()})"
        )
        print(f"  this core {limits(read_only(b''.join(chunks[:8])))}")


if __name__ == "__main__":
    main()
