"""The first record of a batch that reaches a time: inflated piece by piece, up to the record.

A batch of a few kilobytes may inflate to gigabytes of records, and its header may claim a time that
none of them has. A search inflates no more than its allowance; one that ends early answers from the
header, exact to the batch.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import BATCH_HEADER_BYTES
from shm.kernels.record.record_times import (
    ENDED,
    FOUND,
    MALFORMED,
    MORE,
    NO_TIME,
    STATE_AT,
    STATE_OFFSET,
    STATE_TIMESTAMP,
    find_record_time,
    new_search,
)
from shm.kernels.record.records import INT64_MIN
from smq.model.errors import PeerError
from smq.wire.codec import Buffer
from smq.wire.compression import Codec, inflate_pieces
from smq.wire.records import BatchView, read_batches

INFLATED_BYTES_MAX = 64 * 1024 * 1024  # Per batch: far above what a client makes of a megabyte.


class WantedRecord(NamedTuple):
    """A record of this time or later with an offset in [offset, limit).

    `newest`: the one with the largest time, which `timestamp` claims to be.
    """

    timestamp: int
    offset: int
    limit: int
    newest: bool = False


class Searched(NamedTuple):
    """The result: the record's offset and timestamp, or None if the batch has none; the offset
    after the batch; and the bytes that were searched."""

    found: tuple[int, int] | None
    end_offset: int
    bytes_looked_at: int


def find_in_batch(data: bytes | memoryview, wanted: WantedRecord, bytes_max: int) -> Searched:
    """The first wanted record of a batch.

    The newest mostly has the time that the header claims. Else, as where the log starts within the
    batch, its time is found in as many passes as the times' difference has bits.
    """
    searched = _find(data, wanted, bytes_max)
    if searched.found is not None or not wanted.newest:
        return searched
    searched = _find(data, wanted._replace(timestamp=INT64_MIN), bytes_max)
    looked_at, found, above = searched.bytes_looked_at, searched.found, wanted.timestamp
    while found is not None and above - found[1] > 1:
        middle = (found[1] + above) // 2
        higher = _find(data, wanted._replace(timestamp=middle), bytes_max)
        looked_at += higher.bytes_looked_at
        found, above = (higher.found, above) if higher.found else (found, middle)
    return Searched(found, searched.end_offset, looked_at)


def _find(data: bytes | memoryview, wanted: WantedRecord, bytes_max: int) -> Searched:
    [batch] = read_batches(data)
    state, looked_at = new_search(batch.record_count), 0
    outcome, rest = MORE if batch.record_count > 0 else ENDED, b""
    append_time = batch.max_timestamp if batch.is_log_append_time else NO_TIME
    base, asked = (batch.base_offset, batch.base_timestamp, append_time), wanted[:3]
    try:
        for piece in _pieces(batch, bytes_max) if outcome == MORE and bytes_max > 0 else ():
            looked_at += len(piece)
            given = rest + bytes(piece) if rest else piece
            outcome = find_record_time(np.frombuffer(given, np.uint8), state, base, asked)
            if outcome != MORE:
                break
            at = min(int(state[STATE_AT]), len(given))
            state[STATE_AT] -= at
            rest = bytes(given[at:])
    except PeerError:
        outcome = MALFORMED
    end_offset, looked_at = batch.last_offset + 1, len(batch.data) + looked_at
    if outcome == FOUND:
        found = int(state[STATE_OFFSET]), int(state[STATE_TIMESTAMP])
        return Searched(found, end_offset, looked_at)
    if outcome in {MORE, MALFORMED}:  # Its records are malformed, or exceed the limit.
        return Searched(_by_header(batch, wanted), end_offset, looked_at)
    return Searched(None, end_offset, looked_at)


def _pieces(batch: BatchView, bytes_max: int) -> Iterator[Buffer]:
    payload = batch.data[BATCH_HEADER_BYTES:]
    if batch.codec == Codec.NONE:
        return iter((payload,))
    return inflate_pieces(batch.codec, payload, min(bytes_max, INFLATED_BYTES_MAX))


def _by_header(batch: BatchView, wanted: WantedRecord) -> tuple[int, int]:
    return max(batch.base_offset, wanted.offset), batch.max_timestamp
