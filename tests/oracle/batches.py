"""Record batches for dialogues: right ones, and ones with a single thing wrong."""

from struct import pack_into

import numpy as np

from shm.kernels.base.crc32c import crc32c
from smq.wire.records import Headers, Record, write_batch

TIME_MS = 1_500_000_000_000  # In July 2017: every retention of the test brokers is unlimited.

# Where a field of a batch lies, and how it is packed.
_FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
_CHECKED_FROM = 21
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    headers: Headers = (),
    first_ms: int = TIME_MS,
    compression: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A good batch of these values, a millisecond apart; `producer` is id, epoch, sequence."""
    records = [
        Record(number, first_ms + number, key, value, headers)
        for number, value in enumerate(values or (b"v",))
    ]
    producer_id, producer_epoch, base_sequence = producer
    return write_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def changed(good: bytes, **fields: int) -> bytes:
    """The batch with header fields changed, and a CRC that is right unless it is one of them."""
    data = bytearray(good)
    for name, value in fields.items():
        at, form = _FIELDS[name]
        pack_into(form, data, at, value)
    if "crc" not in fields:
        data = bytearray(with_crc(bytes(data)))
    return bytes(data)


def with_payload(good: bytes, payload: bytes, **fields: int) -> bytes:
    """The batch with other bytes where its records are, with its length and CRC right."""
    return changed(good[:61] + payload, **({"length": 49 + len(payload)} | fields))


def with_crc(data: bytes) -> bytes:
    crc = int(crc32c(np.frombuffer(data, np.uint8), _CHECKED_FROM, len(data)))
    return data[:17] + crc.to_bytes(4) + data[_CHECKED_FROM:]


def message_set(magic: int, value: bytes = b"old") -> bytes:
    """One message of the formats before record batches (magic 0 or 1)."""
    import zlib  # noqa: PLC0415  (the only user)

    time = TIME_MS.to_bytes(8) if magic else b""
    body = bytes([magic, 0]) + time + b"\xff\xff\xff\xff" + len(value).to_bytes(4) + value
    message = zlib.crc32(body).to_bytes(4) + body
    return (0).to_bytes(8) + len(message).to_bytes(4) + message
