"""The columns of an index entry. The memory map, kernels and filed tables derive from this table.

    shared    in the log's memory, each column an array in Arrow layout, in this order
    private   `links`, an int64 array [LINK_COLUMNS, capacity] that only the shard sees

An entry is named by a number that only grows; number % capacity is its slot in all columns.
"""

from itertools import accumulate
from typing import Any

import numpy as np

INDEX_DTYPES: dict[str, np.dtype[Any]] = {
    "position": np.dtype("<i8"),  # Of the frame.
    "base_offset": np.dtype("<i8"),
    "max_timestamp": np.dtype("<i8"),  # Of the batch's records.
    "partition": np.dtype("<u4"),  # Its number.
    "record_count": np.dtype("<i4"),  # How many offsets the batch spans.
    "bytes": np.dtype("<i4"),  # Of the batch.
    "attributes": np.dtype("<i2"),  # Of the batch.
}

_WIDTHS = [dtype.itemsize for dtype in INDEX_DTYPES.values()]
INDEX_ENTRY_BYTES = sum(_WIDTHS)  # Of the shared columns.

# For kernels, by column: (bytes of the columns before it, its own bytes), for each slot.
POSITION, BASE_OFFSET, MAX_TIMESTAMP, PARTITION, RECORD_COUNT, BYTES, ATTRIBUTES = zip(
    accumulate(_WIDTHS[:-1], initial=0), _WIDTHS, strict=True
)

LINK_PREVIOUS = 0  # The entry before, of the same partition; -1: none.
LINK_NEXT = 1  # The entry after, -1: none yet.
LINK_JUMP = 2  # An entry further back.
LINK_DEPTH = 3  # How many entries of the partition came before.
LINK_SLOT = 4  # The partition's row in the partition table.
LINK_NEWEST = 5  # The largest timestamp of the partition's entries behind JUMP, this one included.
LINK_COLUMNS = 6
# Kernels check no bounds: a column more is memory of somebody else's.
assert LINK_NEWEST < LINK_COLUMNS
