"""Records of the SDK's consumer, as SeaweedMQ's clients get them."""

import numpy as np

from shm.kernels.reader.messages import MS_NS, TIME_MS_MAX, headers_bytes, write_headers
from shm.kernels.record.records import (
    C_HEADER_COUNT,
    C_HEADERS_AT,
    C_KEY_LENGTH,
    C_VALUE_LENGTH,
)
from smq.agent.read_records import ReadRecord
from smq.app.agent.apart import COPIED_AT_ONCE_BYTES
from smq.client.consuming.batch.chunk import Chunk, Record

PIECE_BYTES = 1024 * 1024  # Copied at a time.


def read_record(record: Record) -> ReadRecord:
    """A record as SeaweedMQ's clients get it, with its offset, which they skip; without headers."""
    value = record.value
    return ReadRecord(
        record.key or b"",
        b"" if value is None else copied(value),
        time_ns(record.timestamp_ms),
        record.offset,
    )


def copied(data: memoryview) -> bytes:
    """A copy. One of much is made piece by piece, as no other thread runs during one of `bytes`; to
    join the pieces lets others run."""
    if len(data) <= COPIED_AT_ONCE_BYTES:
        return bytes(data)
    places = range(0, len(data), PIECE_BYTES)
    return b"".join([bytes(data[at : at + PIECE_BYTES]) for at in places])


def time_ns(time_ms: int) -> int:
    """A record's time, which may be any: at most what 64 bits hold in nanoseconds."""
    return max(-TIME_MS_MAX, min(time_ms, TIME_MS_MAX)) * MS_NS


def size_of(record: Record) -> int:
    """How many bytes its key, its value and its headers take, written."""
    _, _, chunk, row = record
    columns = chunk.columns
    size = max(0, columns.item(C_KEY_LENGTH, row)) + max(0, columns.item(C_VALUE_LENGTH, row))
    count = columns.item(C_HEADER_COUNT, row)
    if count:
        size += headers_bytes(memory_of(chunk), columns.item(C_HEADERS_AT, row), count)
    return int(size)


def headers_of(record: Record) -> bytes:
    """The headers of a record, written."""
    _, _, chunk, row = record
    count = chunk.columns.item(C_HEADER_COUNT, row)
    if not count:
        return b""
    data, at = memory_of(chunk), chunk.columns.item(C_HEADERS_AT, row)
    out = np.empty(headers_bytes(data, at, count), np.uint8)
    write_headers(data, at, count, out)
    return out.tobytes()


def memory_of(chunk: Chunk) -> np.ndarray:
    """A chunk's memory, as kernels are compiled for it."""
    data = chunk.memory.view()
    data.flags.writeable = False
    return data
