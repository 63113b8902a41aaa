"""What a record batch must be before it is appended. Kafka's rules (LogValidator, KIP-98)."""

import numpy as np

from shm.kernels.bytes import get16, get32, get64
from shm.kernels.frames import batch_crc_is_good
from shm.kernels.jit import kernel
from shm.kernels.memory import get_partition
from shm.kernels.words import (
    ATTRIBUTE_CODEC_MASK,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_TRANSACTIONAL,
    BATCH_ATTRIBUTES_AT,
    BATCH_BASE_SEQUENCE_AT,
    BATCH_BASE_TIMESTAMP_AT,
    BATCH_HEADER_BYTES,
    BATCH_LAST_OFFSET_DELTA_AT,
    BATCH_LENGTH_AT,
    BATCH_MAGIC_AT,
    BATCH_MAX_TIMESTAMP_AT,
    BATCH_OVERHEAD_BYTES,
    BATCH_PRODUCER_EPOCH_AT,
    BATCH_PRODUCER_ID_AT,
    BATCH_RECORD_COUNT_AT,
    FLAG_LOG_APPEND_TIME,
    P_BATCH_BYTES_MAX,
    P_FLAGS,
    P_TIMESTAMP_AFTER_MAX,
    P_TIMESTAMP_BEFORE_MAX,
)

CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
INVALID_TXN_STATE = 48
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
CODEC_ZSTD = 4
ZSTD_FROM_VERSION = 7  # Of Produce (KIP-110).


@kernel
def check_shape(data, at, batch_bytes, version):
    """Whether data[at:at + batch_bytes] is one whole v2 batch with the CRC it says; an error code.

    `batch_bytes` is what the request says the records take, -1 for null.
    """
    if batch_bytes <= 0:
        return INVALID_RECORD
    if batch_bytes < BATCH_MAGIC_AT + 1:
        return CORRUPT_MESSAGE
    if data[at + BATCH_MAGIC_AT] != 2:
        return INVALID_RECORD
    length = get32(data, at + BATCH_LENGTH_AT)
    if length < BATCH_HEADER_BYTES - BATCH_OVERHEAD_BYTES:
        return CORRUPT_MESSAGE
    if length + BATCH_OVERHEAD_BYTES > batch_bytes:
        return CORRUPT_MESSAGE
    if length + BATCH_OVERHEAD_BYTES < batch_bytes:
        return INVALID_RECORD  # More than one batch for a partition.
    codec = data[at + BATCH_ATTRIBUTES_AT + 1] & ATTRIBUTE_CODEC_MASK
    if codec == CODEC_ZSTD and version < ZSTD_FROM_VERSION:
        return UNSUPPORTED_COMPRESSION_TYPE
    if codec > CODEC_ZSTD:
        return INVALID_RECORD
    if not batch_crc_is_good(data, at, batch_bytes):
        return CORRUPT_MESSAGE
    return 0


@kernel
def check_content(data, at):
    """Whether a whole batch's header says what a client may say; an error code."""
    attributes = get16(data, at + BATCH_ATTRIBUTES_AT)
    last_delta = get32(data, at + BATCH_LAST_OFFSET_DELTA_AT)
    count = get32(data, at + BATCH_RECORD_COUNT_AT)
    if attributes & ATTRIBUTE_CONTROL or count <= 0 or last_delta != count - 1:
        return INVALID_RECORD
    if attributes & ATTRIBUTE_TRANSACTIONAL:
        return INVALID_TXN_STATE
    if get64(data, at + BATCH_PRODUCER_ID_AT) >= 0 and (
        get32(data, at + BATCH_BASE_SEQUENCE_AT) < 0 or get16(data, at + BATCH_PRODUCER_EPOCH_AT) < 0
    ):
        return INVALID_RECORD
    return 0


@kernel
def check_for_partition(data, at, batch_bytes, memory, slot, now_ms):
    """Whether the partition takes a batch of this size and these times; an error code."""
    if batch_bytes > get_partition(memory, slot, P_BATCH_BYTES_MAX):
        return MESSAGE_TOO_LARGE
    if get_partition(memory, slot, P_FLAGS) & FLAG_LOG_APPEND_TIME:
        return 0
    newest = get64(data, at + BATCH_MAX_TIMESTAMP_AT)
    oldest = get64(data, at + BATCH_BASE_TIMESTAMP_AT)
    after = get_partition(memory, slot, P_TIMESTAMP_AFTER_MAX)
    if newest > now_ms and newest - now_ms > after:
        return INVALID_TIMESTAMP
    before = get_partition(memory, slot, P_TIMESTAMP_BEFORE_MAX)
    if oldest != -1 and oldest < now_ms - min(before, np.int64(now_ms)):
        return INVALID_TIMESTAMP
    return 0
