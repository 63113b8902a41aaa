"""Between message formats 0 and 1 and record batches, in steps: a step takes a few milliseconds.

    Produce  message set  →  one batch, compressed as the first wrapper was
    Fetch    batches      →  message set, not compressed, without headers and control records

Both are generators that yield between steps and return the result.
"""

from collections.abc import Generator
from typing import NamedTuple

from smq.model.errors import ErrorCode, PeerError
from smq.wire.codec import Buffer, Malformed
from smq.wire.compression import Codec, InflatesTooFar, Undecodable
from smq.wire.legacy.records import OldMessage, read_messages, write_message
from smq.wire.records import Batch, BatchBody, Record, read_batches

MiB = 1024 * 1024
BYTES_MAX = 4 * MiB  # Inflated bytes per Produce request, per batch, and per Fetch answer.
MESSAGES_A_STEP = 256
BATCHES_A_STEP = 256  # Markers, which take a microsecond or two each.
# Compressing takes up to ten milliseconds: what is larger stays uncompressed.
COMPRESSED_BYTES_MAX = {Codec.GZIP: MiB // 4, Codec.SNAPPY: 2 * MiB, Codec.LZ4: 2 * MiB}


class Made(NamedTuple):
    """The result of a conversion, or its error; `inflated`: the bytes that count towards the
    limit; `end_offset`: behind the last batch that was read."""

    data: bytes
    inflated: int = 0
    error: ErrorCode = ErrorCode.NONE
    end_offset: int = -1


def to_batch(data: Buffer, bytes_max: int) -> Generator[None, None, Made]:
    """A Produce's message set as a batch."""
    if len(data) > bytes_max:
        return Made(b"", 0, ErrorCode.MESSAGE_TOO_LARGE)
    try:
        return (yield from _batch_of(data, bytes_max))
    except InflatesTooFar:
        return Made(b"", bytes_max, ErrorCode.MESSAGE_TOO_LARGE)
    except (Malformed, Undecodable):
        return Made(b"", 0, ErrorCode.CORRUPT_MESSAGE)


def _batch_of(data: Buffer, bytes_max: int) -> Generator[None, None, Made]:
    body: BatchBody | None = None
    codec = Codec.NONE
    for number, message in enumerate(read_messages(data, bytes_max)):
        if message.is_log_append_time:  # Only brokers set it.
            return Made(b"", 0, ErrorCode.INVALID_TIMESTAMP)
        record = Record(number, message.timestamp_ms, message.key, message.value)
        body = BatchBody(record) if body is None else body
        body.add(record)
        codec = codec or Codec(message.codec)
        if number % MESSAGES_A_STEP == MESSAGES_A_STEP - 1:
            yield
    if body is None:
        return Made(b"", 0, ErrorCode.CORRUPT_MESSAGE)
    yield
    if len(body) > COMPRESSED_BYTES_MAX.get(codec, 0):
        codec = Codec.NONE
    return Made(body.batch(codec), len(body))


def to_messages(
    batches: Buffer, magic: int, start: int, bytes_max: int
) -> Generator[None, None, Made]:
    """The records of batches from the offset `start` on, as a message set.

    It ends after the batch that reaches `bytes_max`: the client asks again.
    """
    made, error, end = bytearray(), ErrorCode.NONE, -1
    try:
        for number, batch in enumerate(read_batches(batches)):
            if len(made) >= bytes_max:
                break
            if not batch.is_control:
                made += yield from _messages_of(batch, magic, start)
            end = batch.last_offset + 1
            if number % BATCHES_A_STEP == BATCHES_A_STEP - 1:
                yield
    except InflatesTooFar:
        error = ErrorCode.MESSAGE_TOO_LARGE
    except PeerError:
        error = ErrorCode.CORRUPT_MESSAGE
    if made:  # Good batches go first; the error follows when the client asks on from there.
        error = ErrorCode.NONE
    return Made(bytes(made), len(made), error, end)


def _messages_of(batch: Batch, magic: int, start: int) -> Generator[None, None, bytes]:
    limit = max(BYTES_MAX, len(batch.data)) if batch.codec == Codec.NONE else BYTES_MAX
    made = bytearray()
    for number, record in enumerate(batch.records(limit)):
        if record.offset >= start:
            made += write_message(
                OldMessage(
                    magic,
                    record.offset,
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    batch.is_log_append_time,
                )
            )
        if number % MESSAGES_A_STEP == MESSAGES_A_STEP - 1:
            yield
    yield
    return bytes(made)
