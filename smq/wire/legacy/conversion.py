"""Between message formats 0 and 1 and record batches, in steps: a step takes a few milliseconds.

    Produce  message set  →  one batch, compressed as the first wrapper was
    Fetch    batches      →  message set, not compressed, without headers and control records

Both are generators that yield between steps and return the result.
"""

from collections.abc import Generator
from typing import NamedTuple

from shm.kernels.record.records import INFLATED_BYTES_MAX
from smq.model.errors import ErrorCode, PeerError
from smq.wire.codec import Buffer, Malformed
from smq.wire.compression import Codec, InflatesTooFar, Undecodable
from smq.wire.legacy.records import OldMessage, read_messages, write_message
from smq.wire.record_stream import InflationLimits, records_from
from smq.wire.records import BatchBody, BatchView, Record, read_batches

MiB = 1024 * 1024
BYTES_MAX = 4 * MiB  # Inflated bytes per Produce request, per record, and per Fetch answer.
# Inflated bytes per batch of a Fetch: as many as a look-up by time inflates, piece by piece. Zstd
# and raw snappy come in one piece, which takes a few milliseconds.
BATCH_BYTES_MAX: dict[int, int] = {Codec.GZIP: INFLATED_BYTES_MAX, Codec.LZ4: INFLATED_BYTES_MAX}
ONE_PIECE_BYTES_MAX = 8 * MiB
MESSAGES_A_STEP = 256
BATCHES_A_STEP = 256  # Markers, which take a microsecond or two each.
# Compressing takes up to ten milliseconds: what is larger stays uncompressed.
COMPRESSED_BYTES_MAX = {Codec.GZIP: MiB // 4, Codec.SNAPPY: 2 * MiB, Codec.LZ4: 2 * MiB}


class Conversion(NamedTuple):
    """The result of a conversion, or its error; `inflated`: the bytes that count towards the
    limit; `end_offset`: behind the last batch that was read, unless that has records."""

    data: bytes
    inflated: int = 0
    error: ErrorCode = ErrorCode.NONE
    end_offset: int = -1


def to_batch(data: Buffer, bytes_max: int) -> Generator[None, None, Conversion]:
    """A Produce's message set as a batch."""
    if len(data) > bytes_max:
        return Conversion(b"", 0, ErrorCode.MESSAGE_TOO_LARGE)
    try:
        return (yield from _batch_of(data, bytes_max))
    except InflatesTooFar:
        return Conversion(b"", bytes_max, ErrorCode.MESSAGE_TOO_LARGE)
    except (Malformed, Undecodable):
        return Conversion(b"", 0, ErrorCode.CORRUPT_MESSAGE)


def _batch_of(data: Buffer, bytes_max: int) -> Generator[None, None, Conversion]:
    body: BatchBody | None = None
    codec = Codec.NONE
    for number, message in enumerate(read_messages(data, bytes_max)):
        if message.is_log_append_time:  # Only brokers set it.
            return Conversion(b"", 0, ErrorCode.INVALID_TIMESTAMP)
        record = Record(number, message.timestamp_ms, message.key, message.value)
        body = BatchBody(record) if body is None else body
        body.add(record)
        codec = codec or Codec(message.codec)
        if number % MESSAGES_A_STEP == MESSAGES_A_STEP - 1:
            yield
    if body is None:
        return Conversion(b"", 0, ErrorCode.CORRUPT_MESSAGE)
    yield
    if len(body) > COMPRESSED_BYTES_MAX.get(codec, 0):
        codec = Codec.NONE
    return Conversion(body.batch(codec), len(body))


def to_messages(
    batches: Buffer, magic: int, start: int, bytes_max: int
) -> Generator[None, None, Conversion]:
    """The records of batches from the offset `start` on, as a message set.

    It ends after the record that reaches `bytes_max`: the client asks again.
    """
    made, error, end = bytearray(), ErrorCode.NONE, -1
    try:
        for number, batch in enumerate(read_batches(batches)):
            if len(made) >= bytes_max:
                break
            if not batch.is_control:
                yield from _add_messages(made, batch, (magic, start), bytes_max)
            end = batch.last_offset + 1
            if number % BATCHES_A_STEP == BATCHES_A_STEP - 1:
                yield
    except InflatesTooFar:
        error = ErrorCode.MESSAGE_TOO_LARGE
    except PeerError:
        error = ErrorCode.CORRUPT_MESSAGE
    if made:  # Good batches go first; the error follows when the client asks on from there.
        error = ErrorCode.NONE
    return Conversion(bytes(made), len(made), error, end)


def _add_messages(
    made: bytearray, batch: BatchView, asked: tuple[int, int], bytes_max: int
) -> Generator[None, None, None]:
    """Add a batch's records to a message set. `asked`: the format, and the first offset."""
    magic, start = asked
    inflated_bytes = BATCH_BYTES_MAX.get(batch.codec, ONE_PIECE_BYTES_MAX)
    limits = InflationLimits(inflated_bytes, max(BYTES_MAX, len(batch.data)))
    for number, record in enumerate(records_from(batch, start, limits)):
        if record is not None:
            message = OldMessage(
                magic,
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                batch.is_log_append_time,
            )
            made += write_message(message)
            if len(made) >= bytes_max:
                return
        if record is None or number % MESSAGES_A_STEP == MESSAGES_A_STEP - 1:
            yield
    yield
