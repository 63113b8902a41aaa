"""Batches for a topic whose `compression.type` is not `producer`: compressed anew as it says.

    header (61 bytes)  →  the same, with another length, codec and CRC
    records            →  inflated  →  compressed by the topic's codec, at its default level

A batch stays as it was sent where it

    is compressed so already           as with Kafka
    inflates to more than BYTES_MAX    the shard's loop does it, and others wait
    may hold handles                   they count in uncompressed batches only
"""

from collections.abc import Mapping

import numpy as np

from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.words import (
    ATTRIBUTE_CODEC_MASK,
    BATCH_ATTRIBUTES_AT,
    BATCH_CRC_AT,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_OVERHEAD_BYTES,
)
from shm.kernels.record.references import may_refer
from smq.wire.compression import Codec, Undecodable, compress, decompress

AS_SENT = "producer"
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
KiB, MiB = 1024, 1024 * 1024
# Inflated: what takes up to ten milliseconds (python -m bench.steps).
BYTES_MAX = {
    Codec.NONE: 2 * MiB,
    Codec.GZIP: 256 * KiB,
    Codec.SNAPPY: 2 * MiB,
    Codec.LZ4: 2 * MiB,
    Codec.ZSTD: 1 * MiB,
}


def codec_of(configs: Mapping[str, str]) -> Codec | None:
    """What a topic's batches are compressed by; None: by what their producers like."""
    return CODECS.get(configs.get("compression.type", AS_SENT))


def recompressed(batch: np.ndarray, codec: Codec) -> np.ndarray | None:
    """The batch compressed by a codec; None: it stays as it was sent.

    `batch` is whole and its records are well-formed.
    """
    data = batch.data
    attributes = int.from_bytes(data[BATCH_ATTRIBUTES_AT : BATCH_ATTRIBUTES_AT + 2])
    sent = attributes & ATTRIBUTE_CODEC_MASK
    if sent == codec or may_refer(batch, 0, len(batch)):
        return None
    try:
        records = bytes(decompress(sent, data[BATCH_HEADER_BYTES:], BYTES_MAX[codec]))
    except Undecodable:
        return None
    made = bytearray(data[:BATCH_HEADER_BYTES]) + compress(codec, records)
    _put(made, BATCH_LENGTH_AT, 4, len(made) - BATCH_OVERHEAD_BYTES)
    _put(made, BATCH_ATTRIBUTES_AT, 2, attributes & ~ATTRIBUTE_CODEC_MASK | codec)
    array = np.frombuffer(made, np.uint8)
    _put(made, BATCH_CRC_AT, 4, int(crc32c(array, BATCH_ATTRIBUTES_AT, len(made))))
    return None if may_refer(array, 0, len(array)) else array


def _put(made: bytearray, at: int, size: int, value: int) -> None:
    made[at : at + size] = value.to_bytes(size)
