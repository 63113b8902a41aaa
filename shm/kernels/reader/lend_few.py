"""Lends and cuts a few small batches in one call: the frequent case of a reader at the log's end.

After a pause the caches are cold, so the path of the next record has few steps. All other cases
take the general path (shm.kernels.reader.lend, shm.kernels.reader.cut), with the same results.
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.reader.cut import cut_batches, run_of
from shm.kernels.reader.lend import (
    CURSOR_ENTRY,
    CURSOR_MOVED,
    F_FIELDS,
    F_POSITION,
    W_AFTER,
    W_MOVED,
    W_NEXT,
    has_from,
    lend_batches,
)
from shm.kernels.record.records import C_FIELDS, C_HEADER_COUNT

BATCHES_FEW = 4
RECORDS_FEW = 16
HEADERS_FEW = 1024  # A poll has room for the columns of so many; the other path counts more.
NOT_FEW = -2

# What `told` says: how many records, the position of the first batch's frame, how many partitions
# have moved, and of each of these its column of `wanted` and the offset it goes on at.
_RECORDS, _POSITION, _MOVED, _MOVES = 0, 1, 2, 3


def new_few() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Room for the facts of a few batches, the columns of their records, their record counts, and
    `told`."""
    facts = np.zeros((F_FIELDS, BATCHES_FEW), np.int64)
    columns = np.zeros((C_FIELDS, RECORDS_FEW), np.int64)
    counts = np.zeros(BATCHES_FEW + 1, np.int64)
    told = np.zeros(_MOVES + 2 * BATCHES_FEW, np.int64)
    return facts, columns, counts, told


@kernel
def _cut(memory, ring, facts, columns, counts, count):
    """Cut the lent batches; whether all were cut, have few headers, and none was overtaken
    meanwhile."""
    end, is_compressed, records = run_of(facts[:, :count], 0)
    if is_compressed or end < count or records > columns.shape[1]:
        return False
    if cut_batches(ring, facts, 0, count, columns, counts) < count:
        return False
    headers = 0
    for record in range(counts[count]):
        headers += columns[C_HEADER_COUNT, record]
    return headers <= HEADERS_FEW and has_from(memory, facts[F_POSITION, 0])


@kernel
def _tell(wanted, cursor, facts, records, told):
    """Report the batches, and move their partitions behind them."""
    told[_RECORDS], told[_POSITION], told[_MOVED] = records, facts[F_POSITION, 0], 0
    for i in range(cursor[CURSOR_MOVED]):
        row = wanted[W_MOVED, i]
        wanted[W_NEXT, row] = wanted[W_AFTER, row]
        told[_MOVES + 2 * i], told[_MOVES + 2 * i + 1] = row, wanted[W_AFTER, row]
        told[_MOVED] = i + 1


@kernel
def lend_few(memory, ring, wanted, cursor, facts, columns, counts, told, bytes_max):
    """Lend, cut and take a few plain batches, as lend_batches and cut_batches do one by one.

    Returns the number of batches; 0: there are none; NOT_FEW: another case, and nothing has moved.
    """
    before = cursor[CURSOR_ENTRY]
    count = np.int64(lend_batches(memory, wanted, cursor, facts, bytes_max))
    if count == 0:
        return count
    is_few = 0 < count < facts.shape[1] and cursor[CURSOR_MOVED] <= facts.shape[1]
    if is_few and _cut(memory, ring, facts, columns, counts, count):
        _tell(wanted, cursor, facts, counts[count], told)
        return count
    cursor[CURSOR_ENTRY] = before
    return np.int64(NOT_FEW)
