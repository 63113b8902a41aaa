"""Writing and checking frames. The map is drawn in shm.layout."""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import get32, get64, load32, load64, load_u32, store32, store64
from shm.kernels.base.crc32c import crc32c
from shm.kernels.base.crc_sums import crc32c_update_by_sums
from shm.kernels.base.jit import kernel

BATCH_FORMAT = 2
OFFSETS_END = 1 << 62  # No log gets there, and sums of offsets fit.


@kernel
def frame_bytes(batch_bytes):
    """The bytes of a batch in ring and WAL: header, batch, padding to the alignment."""
    return (words.FRAME_HEADER_BYTES + batch_bytes + words.FRAME_ALIGNMENT_BYTES - 1) & ~(
        words.FRAME_ALIGNMENT_BYTES - 1
    )


@kernel
def _checked_end(data, at):
    """Where the part of the frame at data[at] ends that its check covers, from its position on."""
    start = at + words.FRAME_HEADER_BYTES
    kind = load32(data, at + words.FRAME_KIND_AT)
    if kind == words.FRAME_KIND_BATCH:
        return start + words.BATCH_HEADER_BYTES
    if kind > 0 and kind != words.FRAME_KIND_PADDING:
        return start + load32(data, at + words.FRAME_BYTES_AT)
    return start


@kernel
def frame_check(data, at):
    """The check of the frame at data[at]: over its header, and a part of its content.

    The part is a batch's own header, nothing of padding, and all of an unknown kind, whose `bytes`
    must then lie in `data`.
    """
    return np.int64(crc32c(data, at + words.FRAME_POSITION_AT, _checked_end(data, at)))


@kernel
def _frame_check_by_sums(data, at, sums):
    """See frame_check, and crc_sums."""
    start, end = at + words.FRAME_POSITION_AT, _checked_end(data, at)
    crc = crc32c_update_by_sums(data, start, end, np.uint32(0xFFFFFFFF), sums)
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@kernel
def write_frame_header(data, at, position, stamps, batch_bytes, partition, kind, level):
    """Write the header, with its check, of a frame whose content is already in place.

    `stamps` is (synced position, generation).
    """
    store32(data, at + words.FRAME_MAGIC_AT, words.FRAME_MAGIC)
    store64(data, at + words.FRAME_POSITION_AT, position)
    store64(data, at + words.FRAME_SYNCED_AT, stamps[0])
    store32(data, at + words.FRAME_GENERATION_AT, stamps[1])
    store32(data, at + words.FRAME_BYTES_AT, batch_bytes)
    store32(data, at + words.FRAME_PARTITION_AT, partition)
    store32(data, at + words.FRAME_KIND_AT, kind)
    store64(data, at + words.FRAME_LEVEL_AT, level)
    store32(data, at + words.FRAME_CHECK_AT, frame_check(data, at))


@kernel
def batch_fits(data, at, batch_bytes):
    """Whether the batch at data[at] has a header that a log writes into a frame for so many bytes.

    A right check does not say it: a snapshot may come from anywhere. Who reads batches one after
    the other goes by their own lengths.
    """
    base_offset = get64(data, at + words.BATCH_BASE_OFFSET_AT)
    last_delta = get32(data, at + words.BATCH_LAST_OFFSET_DELTA_AT)
    return (
        data[at + words.BATCH_MAGIC_AT] == BATCH_FORMAT
        and get32(data, at + words.BATCH_LENGTH_AT) + words.BATCH_OVERHEAD_BYTES == batch_bytes
        and last_delta >= 0
        and 0 <= base_offset < OFFSETS_END - last_delta
    )


@kernel
def _frame_lies(data, at, end, position):
    """Whether data[at:end] begins with the header of a frame of this position, and has as many
    bytes as that says."""
    if (
        end - at < words.FRAME_HEADER_BYTES
        or load32(data, at + words.FRAME_MAGIC_AT) != words.FRAME_MAGIC
    ):
        return False
    if load64(data, at + words.FRAME_POSITION_AT) != position:
        return False
    kind = load32(data, at + words.FRAME_KIND_AT)
    size = load32(data, at + words.FRAME_BYTES_AT)
    if kind <= 0 or size < 0:
        return False
    if kind == words.FRAME_KIND_BATCH and size < words.BATCH_HEADER_BYTES:
        return False
    # Padding takes what it says: it ends where ring or segment end.
    taken = (
        words.FRAME_HEADER_BYTES + size if kind == words.FRAME_KIND_PADDING else frame_bytes(size)
    )
    return at + taken <= end


@kernel
def _content_fits(data, at):
    """Whether the frame at data[at] has what a log writes: a batch that fits it, padding up to a
    place where the next frame may begin, or an unknown kind."""
    kind = load32(data, at + words.FRAME_KIND_AT)
    size = load32(data, at + words.FRAME_BYTES_AT)
    if kind == words.FRAME_KIND_BATCH:
        return batch_fits(data, at + words.FRAME_HEADER_BYTES, size)
    if kind == words.FRAME_KIND_PADDING:
        return words.FRAME_HEADER_BYTES + size == frame_bytes(size)
    return True


@kernel
def frame_is_whole(data, at, end, position):
    """Whether data[at:end] begins with a whole frame of this position whose check is right.

    A batch behind its first 61 bytes is not checked: it has a CRC of its own. A frame of an unknown
    kind is checked whole.
    """
    if not _frame_lies(data, at, end, position):
        return False
    return load_u32(data, at + words.FRAME_CHECK_AT) == frame_check(data, at)


@kernel
def frame_is_good(data, at, end, position):
    """Whether data[at:end] begins with a whole frame of this position whose check is right, and
    whose content is what a log writes."""
    return frame_is_whole(data, at, end, position) and _content_fits(data, at)


@kernel
def frame_is_good_by_sums(data, at, end, position, sums):
    """See frame_is_good: for who looks at many places, where headers may say anything."""
    if not _frame_lies(data, at, end, position):
        return False
    if load_u32(data, at + words.FRAME_CHECK_AT) != _frame_check_by_sums(data, at, sums):
        return False
    return _content_fits(data, at)


@kernel
def frame_is_made_up(data, at, end, position):
    """Whether data[at:end] begins with a whole frame whose check is right, and whose content is
    nothing that a log writes. It reads no more than the headers of frame and batch."""
    if end - at < words.FRAME_HEADER_BYTES:
        return False
    kind = load32(data, at + words.FRAME_KIND_AT)
    is_known = kind == words.FRAME_KIND_BATCH
    is_known |= kind == words.FRAME_KIND_PADDING
    if not is_known:
        return False
    return frame_is_whole(data, at, end, position) and not _content_fits(data, at)


@kernel
def batch_crc_is_good(data, at, batch_bytes):
    """Whether the batch at data[at] has the CRC it says (of all that is behind it, KIP-98)."""
    said = get32(data, at + words.BATCH_CRC_AT) & 0xFFFFFFFF
    return np.int64(crc32c(data, at + words.BATCH_ATTRIBUTES_AT, at + batch_bytes)) == said


@kernel
def batch_crc_is_good_by_sums(data, at, batch_bytes, sums):
    """See batch_crc_is_good, and crc_sums."""
    said = get32(data, at + words.BATCH_CRC_AT) & 0xFFFFFFFF
    start, crc = at + words.BATCH_ATTRIBUTES_AT, np.uint32(0xFFFFFFFF)
    crc = crc32c_update_by_sums(data, start, at + batch_bytes, crc, sums)
    return np.int64(crc ^ np.uint32(0xFFFFFFFF)) == said
