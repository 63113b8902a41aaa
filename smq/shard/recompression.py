"""Recompresses batches for topics whose `compression.type` is not `producer`.

    header (61 bytes)  →  the same, with another length, codec and CRC
    records            →  inflated  →  compressed by the topic's codec, at the topic's level

A batch stays as it was sent where it

    already has that codec             as in Kafka
    inflates to more than bytes_max    compressing it takes long, and others wait for the lane
    may hold handles                   these only count in uncompressed batches
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import (
    ATTRIBUTE_CODEC_MASK,
    BATCH_ATTRIBUTES_AT,
    BATCH_HEADER_BYTES,
)
from shm.kernels.record.references import may_refer
from smq.model.topic_settings import TopicSettings
from smq.wire.codec import Buffer
from smq.wire.compression import (
    LZ4_LEVEL,
    ZSTD_LEVEL,
    Codec,
    Undecodable,
    compress,
    decompress,
)
from smq.wire.records import with_payload

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
KiB, MiB = 1024, 1024 * 1024
# Inflated bytes by level, for some ten milliseconds of work (python -m bench.steps). The first
# level of each codec is the default.
BYTES_MAX: Mapping[Codec, Mapping[int, int]] = {
    Codec.NONE: {0: 2 * MiB},
    Codec.GZIP: {6: 256 * KiB, 9: 128 * KiB},
    Codec.SNAPPY: {0: 2 * MiB},
    Codec.LZ4: {LZ4_LEVEL: 2 * MiB},
    Codec.ZSTD: {ZSTD_LEVEL: 1 * MiB, 6: 384 * KiB, 9: 256 * KiB, 12: 128 * KiB, 22: 16 * KiB},
}
LZ4_SLOW_BYTES_MAX = 128 * KiB


class Compression(NamedTuple):
    """A codec and its level; None: the default one."""

    codec: Codec
    level: int | None = None

    @property
    def bytes_max(self) -> int:
        """The largest inflated batch that is recompressed."""
        if self.codec == Codec.LZ4 and self.level not in {None, LZ4_LEVEL}:
            return LZ4_SLOW_BYTES_MAX
        bounds = BYTES_MAX[self.codec]
        level = min(bounds) if self.level is None else self.level
        return next(size for up_to, size in bounds.items() if level <= up_to)


def compression_of(settings: TopicSettings) -> Compression | None:
    """How a topic's batches are compressed; None: as their producers choose."""
    codec = CODECS.get(settings.compression)
    return None if codec is None else Compression(codec, settings.compression_level)


def codec_of(batch: np.ndarray) -> int:
    """The codec in a batch's attributes."""
    return int(batch[BATCH_ATTRIBUTES_AT + 1]) & ATTRIBUTE_CODEC_MASK  # A big-endian int16.


def recompressed(
    batch: np.ndarray, wanted: Compression, records: Buffer | None = None
) -> np.ndarray | None:
    """The recompressed batch; None: it stays as it was sent.

    `batch` is whole and its records, which may be inflated already, are well-formed.
    """
    data = batch.data
    sent, codec = codec_of(batch), wanted.codec
    if sent == codec or may_refer(batch, 0, len(batch)):
        return None
    try:
        if records is None:
            records = decompress(sent, data[BATCH_HEADER_BYTES:], wanted.bytes_max)
    except Undecodable:
        return None
    made = with_payload(data, codec, compress(codec, bytes(records), wanted.level))
    array = np.frombuffer(made, np.uint8)
    return None if may_refer(array, 0, len(array)) else array
