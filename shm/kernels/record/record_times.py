"""Finds the first record of a batch that reaches a timestamp, in records given piece by piece.

Only the length and the head of each record are read; key, value and headers are skipped, even
across pieces, and not checked. So a batch of any size takes the memory of one piece.

    state   int64 [STATE_WORDS]: the start of the next record in the next piece; the number of
            records left; offset and timestamp of the record found
    batch   (base offset, base timestamp, the batch's largest timestamp if it counts for all of
            its records, else NO_TIME)
    wanted  (timestamp, first offset, offset behind the last)
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.record.records import (
    INT64_MIN,
    RECORD_BYTES_MIN,
    get_varint,
    get_varlong,
    sum_overflows,
)

STATE_AT, STATE_LEFT, STATE_OFFSET, STATE_TIMESTAMP = range(4)
STATE_WORDS = 4
NO_TIME = INT64_MIN  # No append time; a batch that says so is read by its records' times.
HEAD_BYTES_MAX = 5 + 1 + 10 + 5  # Of a record: length, attributes, the two deltas.

FOUND = 1
ENDED = 0  # All records were looked at: none of them.
MORE = -1  # The next piece is needed, from the state's place in this one on.
MALFORMED = -2


def new_search(record_count: int) -> np.ndarray:
    """The state of a search at the first of `record_count` records."""
    state = np.zeros(STATE_WORDS, np.int64)
    state[STATE_LEFT] = record_count
    return state


@kernel
def record_head(data, at):
    """Read the record at data[at:]: its end, its timestamp delta and its offset delta.

    The end may lie behind the data. (MORE, 0, 0): the head does; or (MALFORMED, 0, 0).
    """
    length, head = get_varint(data, at, len(data))
    delta, end = get_varlong(data, head + 1 if head >= 0 else -1, len(data))
    offset_delta, end = get_varint(data, end, len(data))
    if end < 0:
        return MORE if len(data) - at < HEAD_BYTES_MAX else MALFORMED, 0, 0
    if length < RECORD_BYTES_MIN - 1 or end > head + length:
        return MALFORMED, 0, 0
    return head + length, delta, offset_delta


@kernel
def find_record_time(data, state, batch, wanted):
    """Search the records that begin in `data`: FOUND, ENDED, MORE or MALFORMED."""
    at, left, outcome = state[STATE_AT], state[STATE_LEFT], ENDED
    base_offset, base_timestamp, append_time = batch
    timestamp, first, behind = wanted
    while left > 0 and outcome == ENDED:
        end, delta, offset_delta = record_head(data, at)
        if end < 0 or sum_overflows(base_timestamp, delta):
            outcome = end if end < 0 else MALFORMED
            break
        time = base_timestamp + delta if append_time == NO_TIME else append_time
        offset = base_offset + offset_delta
        if time >= timestamp and first <= offset < behind:
            state[STATE_OFFSET], state[STATE_TIMESTAMP] = offset, time
            outcome = FOUND
        at, left = end, left - 1
    state[STATE_AT], state[STATE_LEFT] = at, left
    return outcome
