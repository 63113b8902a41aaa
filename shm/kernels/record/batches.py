"""The checks of a record batch before it is appended: Kafka's rules, in Kafka's order.

    check_shape      the records of a partition are one whole batch (ProduceRequest.validateRecords)
    check_size       the topic and the log can take it
    batch_crc_is_good (shm.kernels.base.frames)
    check_content    a client may write such a header (UnifiedLog, LogValidator; KIP-98)
    check_times      its timestamps are within the topic's limits

The records themselves are not checked: a batch with a valid CRC may hold garbage, so each reader
checks them as it reads. Only the record count of an uncompressed batch is checked against its size,
so that no reader allocates memory for records that cannot be there.
"""

from shm.kernels.base import words
from shm.kernels.base.bytes import get16, get32, get64
from shm.kernels.base.frames import frame_bytes
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import get_partition, get_word
from shm.kernels.record.records import INFLATED_BYTES_MAX, RECORD_BYTES_MIN

UNKNOWN_SERVER_ERROR = -1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
INVALID_TXN_STATE = 48
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
CODEC_ZSTD = 4
ZSTD_FROM_VERSION = 7  # Of Produce (KIP-110).

LENGTH_MIN = 14  # The least length of a batch or message of any format.
MAGIC_MAX = 2
NO_BATCH = 0
CORRUPT = -1


@kernel
def whole_batch(data, at, end):
    """The bytes of the batch that begins at data[at]; NO_BATCH: it is not whole; CORRUPT."""
    if end - at < words.BATCH_OVERHEAD_BYTES:
        return NO_BATCH
    length = get32(data, at + words.BATCH_LENGTH_AT)
    if length < LENGTH_MIN:
        return CORRUPT
    if end - at <= words.BATCH_MAGIC_AT:
        return NO_BATCH
    if data[at + words.BATCH_MAGIC_AT] > MAGIC_MAX:
        return CORRUPT
    size = length + words.BATCH_OVERHEAD_BYTES
    return size if size <= end - at else NO_BATCH


@kernel
def _error_of(size):
    """The error of whole_batch for a client that sent no batch, or too many."""
    return CORRUPT_MESSAGE if size == CORRUPT else INVALID_RECORD


@kernel
def check_shape(data, at, end, version, is_transactional):
    """Whether data[at:end] is one whole v2 batch: (error, bytes of the batch).

    Trailing bytes that are no whole batch are ignored, as in Kafka. `is_transactional`: the request
    names a transactional id. Whether the batch is part of a transaction is not checked here.
    """
    size = whole_batch(data, at, end)
    if size <= 0 or data[at + words.BATCH_MAGIC_AT] != MAGIC_MAX:
        return _error_of(size), size
    after = whole_batch(data, at + size, end)
    if after != NO_BATCH:
        return _error_of(after), size
    if size < words.BATCH_HEADER_BYTES:
        return CORRUPT_MESSAGE, size
    attributes = get16(data, at + words.BATCH_ATTRIBUTES_AT)
    error = 0
    if attributes & words.ATTRIBUTE_TRANSACTIONAL and not is_transactional:
        error = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif version < ZSTD_FROM_VERSION and attributes & words.ATTRIBUTE_CODEC_MASK == CODEC_ZSTD:
        error = UNSUPPORTED_COMPRESSION_TYPE
    return error, size


@kernel
def check_size(memory, slot, size):
    """Check that topic and log take a batch of this size; returns an error code.

    A topic keeps the limit of its creation; ring and segments may have become smaller since.
    """
    room = min(
        get_word(memory, words.WORD_SEGMENT_BYTES), get_word(memory, words.WORD_RING_BYTES) // 2
    )
    if size > get_partition(memory, slot, words.P_BATCH_BYTES_MAX) or frame_bytes(size) > room:
        return MESSAGE_TOO_LARGE
    return 0


@kernel
def check_content(data, at, size):
    """Check a whole batch's header against what clients may send; returns an error code."""
    attributes = get16(data, at + words.BATCH_ATTRIBUTES_AT)
    codec = attributes & words.ATTRIBUTE_CODEC_MASK
    count = get32(data, at + words.BATCH_RECORD_COUNT_AT)
    if get64(data, at + words.BATCH_BASE_OFFSET_AT) != 0 or attributes & words.ATTRIBUTE_CONTROL:
        return INVALID_RECORD
    if codec > CODEC_ZSTD:
        return UNKNOWN_SERVER_ERROR
    if count <= 0 or get32(data, at + words.BATCH_LAST_OFFSET_DELTA_AT) != count - 1:
        return INVALID_RECORD
    records_bytes_max = size - words.BATCH_HEADER_BYTES if codec == 0 else INFLATED_BYTES_MAX
    if RECORD_BYTES_MIN * count > records_bytes_max:
        return INVALID_RECORD
    if (
        get64(data, at + words.BATCH_PRODUCER_ID_AT) >= 0
        and get32(data, at + words.BATCH_BASE_SEQUENCE_AT) < 0
    ):
        return INVALID_RECORD
    return 0


@kernel
def check_times(data, at, memory, slot, wall_ms):
    """Check that the partition takes these timestamps; returns an error code. -1 is no
    timestamp."""
    if get_partition(memory, slot, words.P_FLAGS) & words.FLAG_LOG_APPEND_TIME:
        return 0
    newest = get64(data, at + words.BATCH_MAX_TIMESTAMP_AT)
    oldest = get64(data, at + words.BATCH_BASE_TIMESTAMP_AT)
    if newest > wall_ms and newest - wall_ms > get_partition(
        memory, slot, words.P_TIMESTAMP_AFTER_MAX
    ):
        return INVALID_TIMESTAMP
    if oldest != -1 and wall_ms - oldest > get_partition(
        memory, slot, words.P_TIMESTAMP_BEFORE_MAX
    ):
        return INVALID_TIMESTAMP
    return 0


@kernel
def is_idempotent(data, at):
    """Whether a batch asks for sequence checks: an id without an epoch does not, as in Kafka."""
    has_epoch = get16(data, at + words.BATCH_PRODUCER_EPOCH_AT) >= 0
    return has_epoch and get64(data, at + words.BATCH_PRODUCER_ID_AT) >= 0


@kernel
def sequences_of(data, at):
    """A batch's first and last sequence; they wrap from 2^31 - 1 to 0."""
    first = get32(data, at + words.BATCH_BASE_SEQUENCE_AT)
    return first, (first + get32(data, at + words.BATCH_LAST_OFFSET_DELTA_AT)) & 0x7FFFFFFF
