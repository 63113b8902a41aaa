"""What a log may have written: bounds of what a start reads from checkpoints and adoptions."""

from collections.abc import Mapping, Sequence

import numpy as np

from shm.kernels.log.producers import (
    PRODUCER_BATCHES,
    R_BATCH_COUNT,
    R_BATCHES,
    R_COORDINATOR_EPOCH,
    R_EPOCH,
    R_NEWEST,
    R_PARTITION,
)
from smq.model.config import INT32_MAX

Bounds = tuple[int, int]
"""The lowest and the highest number that there may be."""

NUMBERS = 0, 2**32 - 1  # A frame has a partition's number in 32 bits.
INT16, INT32, INT64 = (-(2**15), 2**15 - 1), (-INT32_MAX - 1, INT32_MAX), (-(2**63), 2**63 - 1)
PRODUCER_BOUNDS: Mapping[int, Bounds] = {
    R_PARTITION: NUMBERS,
    R_EPOCH: INT16,
    R_BATCH_COUNT: (0, PRODUCER_BATCHES),
    R_NEWEST: (0, PRODUCER_BATCHES - 1),
    R_COORDINATOR_EPOCH: (-INT32_MAX, INT32_MAX + 1),  # One is added.
    **{R_BATCHES + 4 * i: INT32 for i in range(PRODUCER_BATCHES)},  # First sequences …
    **{R_BATCHES + 4 * i + 1: INT32 for i in range(PRODUCER_BATCHES)},  # … and last ones.
}


def require(values: Sequence[object], bounds: Bounds) -> None:
    """Raise ValueError unless all are numbers within the bounds."""
    low, high = bounds
    for value in values:
        if type(value) is not int or not low <= value <= high:
            raise ValueError("a number beyond its bounds")


def require_all(column: np.ndarray, bounds: Bounds) -> None:
    """Raise ValueError unless all numbers of an int64 column are within the bounds."""
    if len(column):
        require([int(column.min()), int(column.max())], bounds)


def require_producers(rows: np.ndarray) -> None:
    """Raise ValueError unless these are rows of shm.kernels.log.producers, int64 [n, 32]."""
    for column, bounds in PRODUCER_BOUNDS.items():
        require_all(rows[:, column], bounds)


def require_transactions(opened: np.ndarray, aborted: np.ndarray, places: Bounds) -> None:
    """Raise ValueError unless these are rows with the fields of Open and of Aborted, int64 [n, 5].
    `places` are the bounds of offsets."""
    for rows, last in ((opened, INT64), (aborted, places)):
        for column, bounds in enumerate((NUMBERS, INT64, INT16, places, last)):
            require_all(rows[:, column], bounds)
