"""Checks what a topic requires of each record: well-formed, with a key, its time within limits.

Unlike columns (`records`), this takes no memory per record: a batch of a few kilobytes may inflate
to a million records.
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.record.records import (
    B_BASE_OFFSET,
    B_BASE_TIMESTAMP,
    B_COUNT,
    B_LAST_OFFSET,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_KEY_LENGTH,
    C_OFFSET,
    C_TIMESTAMP,
    walk_record,
)

L_NEEDS_KEY = 0  # 1: each record must have a key.
L_FIRST_MS = 1  # No record's time is earlier …
L_LAST_MS = 2  # … or later than these.
LIMIT_WORDS = 3
NO_TIME = -1

# Rows of `refused`: how many places follow, then the places of records in the batch.
R_KEYLESS = 0
R_LATE = 1
R_ROWS = 2


def new_refused(places: int) -> np.ndarray:
    """Room for `places` refused records of each kind."""
    return np.zeros((R_ROWS, 1 + places), np.int64)


@kernel
def _note(refused, kind, record):
    """Note a record's place, if there is room."""
    if refused[kind, 0] + 1 < refused.shape[1]:
        refused[kind, 0] += 1
        refused[kind, refused[kind, 0]] = record


@kernel
def check_records(data, facts, limits, column, refused):
    """Check the records of the batch facts[:, 0]; whether they are well-formed.

    limits    int64 of LIMIT_WORDS
    column    new_columns(1), as a workspace
    refused   new_refused(): the first places of records that break a limit
    """
    at, end = int(facts[B_RECORDS_AT, 0]), int(facts[B_RECORDS_END, 0])
    base = (int(facts[B_BASE_OFFSET, 0]), int(facts[B_BASE_TIMESTAMP, 0]))
    offset_before, count = base[0] - 1, int(facts[B_COUNT, 0])
    if count < 0:
        return False
    for record in range(count):
        at = walk_record(data, at, end, base, column, 0)
        if at < 0 or column[C_OFFSET, 0] <= offset_before:
            return False
        offset_before = int(column[C_OFFSET, 0])
        if limits[L_NEEDS_KEY] != 0 and column[C_KEY_LENGTH, 0] < 0:
            _note(refused, R_KEYLESS, record)
        time = int(column[C_TIMESTAMP, 0])
        if time > limits[L_LAST_MS] or (time < limits[L_FIRST_MS] and time != NO_TIME):
            _note(refused, R_LATE, record)
    return at == end and offset_before <= facts[B_LAST_OFFSET, 0]
