"""What a reader at its log's end mostly finds, a small batch or a few: lent and cut in one call.

A record that comes after a pause finds caches that have forgotten the reader's code. So it gets a
way of its own, with few steps; whatever is not of this kind goes the way of all (shm.kernels.lend,
shm.kernels.cut), which decides nothing differently.
"""

import numpy as np

from shm.kernels.cut import cut_batches, run_of
from shm.kernels.jit import kernel
from shm.kernels.lend import (
    CURSOR_ENTRY,
    F_FIELDS,
    F_POSITION,
    lend_batches,
    oldest_position,
)
from shm.kernels.records import C_FIELDS

BATCHES_FEW = 4
RECORDS_FEW = 16
NOT_FEW = -2


def new_few() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for the facts of a few batches, the columns of their records, and how many each has."""
    facts = np.zeros((F_FIELDS, BATCHES_FEW), np.int64)
    return facts, np.zeros((C_FIELDS, RECORDS_FEW), np.int64), np.zeros(BATCHES_FEW + 1, np.int64)


@kernel
def _cut(memory, ring, facts, columns, counts, count):
    """Cut the batches that were lent; whether that was done, and none was overtaken meanwhile."""
    end, is_compressed, records = run_of(facts[:, :count], 0)
    if is_compressed or end < count or records > columns.shape[1]:
        return False
    if cut_batches(ring, facts, 0, count, columns, counts) < count:
        return False
    return oldest_position(memory) <= facts[F_POSITION, 0]


@kernel
def lend_few(memory, ring, wanted, cursor, facts, columns, counts, bytes_max):
    """Lend and cut a few plain batches, as lend_batches and cut_batches do one after the other.

    Returns how many batches, 0: there is nothing; or NOT_FEW: it is something else, and nothing has
    moved. The records of all stand behind the last one's in `counts`.
    """
    before = cursor[CURSOR_ENTRY]
    count = np.int64(lend_batches(memory, wanted, cursor, facts, bytes_max))
    if count == 0:
        return count
    if 0 < count < facts.shape[1] and _cut(memory, ring, facts, columns, counts, count):
        return count
    cursor[CURSOR_ENTRY] = before
    return np.int64(NOT_FEW)
