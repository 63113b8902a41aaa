"""Reads what a damaged frame still says, if its header is good.

The header's check covers the batch's own header too: the offsets, and the CRC of a marker's record,
which tells what the record was. A lost marker would be worse than lost records: a committed
transaction would be aborted, an aborted one would end with the producer's next.
"""

from typing import NamedTuple

import numpy as np

from shm.kernels.base.frames import frame_is_good
from shm.kernels.base.words import (
    BATCH_LAST_OFFSET_DELTA_AT,
    FRAME_ALIGNMENT_BYTES,
    FRAME_BYTES_AT,
    FRAME_HEADER_BYTES,
    FRAME_KIND_AT,
    FRAME_KIND_BATCH,
    FRAME_PARTITION_AT,
)
from smq.log.files.disk import Disk
from smq.log.files.segment import WalSegment
from smq.wire.markers import restored_marker


class DamagedBatch(NamedTuple):
    """A damaged batch's partition, and the offset behind it."""

    number: int
    end_offset: int


def known_of(data: np.ndarray, position: int) -> DamagedBatch | None:
    """What the header of the damaged frame at data[0] says, if that is good and of a batch."""
    if not _is_batch(data, position):
        return None
    number = int(data[FRAME_PARTITION_AT : FRAME_PARTITION_AT + 4].view(np.uint32)[0])
    delta_at = FRAME_HEADER_BYTES + BATCH_LAST_OFFSET_DELTA_AT
    base = int(data[FRAME_HEADER_BYTES : FRAME_HEADER_BYTES + 8].view(">i8")[0])
    return DamagedBatch(number, base + int(data[delta_at : delta_at + 4].view(">i4")[0]) + 1)


def restore_marker(disk: Disk, segment: WalSegment, data: np.ndarray, at: int) -> np.ndarray | None:
    """Write the damaged marker at data[at] of a segment again; returns the segment's bytes with it,
    in `data` itself if that can be written to: there may be many markers.

    None: it is no marker, not known, or cannot be written; or it is whole, and an earlier life's.
    """
    if not _is_batch(data[at:], segment.start + at):
        return None
    start = at + FRAME_HEADER_BYTES
    size = int(data[at + FRAME_BYTES_AT : at + FRAME_BYTES_AT + 4].view(np.int32)[0])
    found = data[start : start + size].tobytes()
    marker = restored_marker(found)
    if marker in {None, found}:
        return None
    try:
        disk.write(segment.fd, memoryview(marker), start)
    except OSError:
        return None
    # The mapped file may show what was written, or not.
    whole = data if data.flags.writeable else data.copy()
    whole[start : start + size] = np.frombuffer(marker, np.uint8)
    return whole


def _is_batch(data: np.ndarray, position: int) -> bool:
    if len(data) < FRAME_ALIGNMENT_BYTES or not frame_is_good(data, 0, len(data), position):
        return False
    kind = int(data[FRAME_KIND_AT : FRAME_KIND_AT + 4].view(np.int32)[0])
    return kind == FRAME_KIND_BATCH
