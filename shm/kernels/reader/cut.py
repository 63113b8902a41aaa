"""Cuts batches, lent from the ring or fetched, into the records that the reader asked for.

One call handles a run of uncompressed batches in one memory, so that a single small batch takes as
few steps as thousands.
"""

from shm.kernels.base import words
from shm.kernels.base.jit import kernel
from shm.kernels.reader.lend import F_START
from shm.kernels.record.records import (
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_COUNT,
    B_INTACT,
    B_MAX_TIMESTAMP,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_FIELDS,
    C_OFFSET,
    C_TIMESTAMP,
    RECORD_BYTES_MIN,
    walk_batch,
)


@kernel
def run_of(facts, first):
    """The run of batches from `first` on that are all compressed, or none.

    (its end, whether compressed, how many records they say they have: as bytes can hold)
    """
    is_compressed = facts[B_ATTRIBUTES, first] & words.ATTRIBUTE_CODEC_MASK != 0
    end, records = first, 0
    while end < facts.shape[1]:
        if (facts[B_ATTRIBUTES, end] & words.ATTRIBUTE_CODEC_MASK != 0) != is_compressed:
            break
        records += _records_announced(facts, end)
        end += 1
    return end, is_compressed, records


@kernel
def _records_announced(facts, batch):
    room = (facts[B_RECORDS_END, batch] - facts[B_RECORDS_AT, batch]) // RECORD_BYTES_MIN
    return max(0, min(facts[B_COUNT, batch], room))


@kernel
def records_announced(facts):
    """How many records some batches claim, each bounded by what its bytes can hold."""
    records = 0
    for batch in range(facts.shape[1]):
        records += _records_announced(facts, batch)
    return records


@kernel
def _drop_before(columns, row, end, offset):
    """Remove the records below an offset from columns[:, row:end]; returns the row behind the
    rest."""
    kept = row
    while kept < end and columns[C_OFFSET, kept] < offset:
        kept += 1
    if kept > row:
        for field in range(C_FIELDS):
            for each in range(end - kept):
                columns[field, row + each] = columns[field, kept + each]
    return end - (kept - row)


@kernel
def cut_batches(data, facts, first, end, columns, counts):
    """Cut the records of batches facts[:, first:end] into `columns`, from F_START of each on.
    counts: the number of records of each batch, then their sum.

    Returns how many batches were cut, up to one that is malformed.
    """
    row, cut = 0, 0
    for batch in range(first, end):
        after = walk_batch(data, facts, batch, columns, row) if facts[B_INTACT, batch] else -1
        if after < 0:
            break
        if facts[B_BASE_OFFSET, batch] < facts[F_START, batch]:
            after = _drop_before(columns, row, after, facts[F_START, batch])
        if facts[B_ATTRIBUTES, batch] & words.ATTRIBUTE_LOG_APPEND_TIME:
            for each in range(row, after):
                columns[C_TIMESTAMP, each] = facts[B_MAX_TIMESTAMP, batch]
        counts[cut] = after - row
        row, cut = after, cut + 1
    counts[end - first] = row
    return cut
