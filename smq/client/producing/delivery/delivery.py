"""Where the broker has put records: the results of futures."""

from typing import NamedTuple

import numpy as np


class Delivery(NamedTuple):
    """Where a record is. The offset is -1 if the broker only knows that it has the record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Deliveries(NamedTuple):
    """Where the records of a batch are: a row for each, in the order in which they were given."""

    topic: str
    partitions: np.ndarray
    offsets: np.ndarray
    timestamps_ms: np.ndarray
