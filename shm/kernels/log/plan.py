"""The plan of one receive: the contents of a buffer's Produce requests, as tables of int64.

    head       32 words: inputs of the caller, outputs of the kernels
    requests   eight words each
    topics     five words each, the requests' topics in order
    rows       twelve words each, one for each batch, the topics' partitions in order

One int64 array holds all tables, so that a kernel takes one argument; `new_plan` sets how many rows
each has. A buffer that needs more stops with STOP_PLAN_FULL before the first request that does not
fit; a single request that does not fit needs a larger plan, up to ROWS_MAX.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.jit import kernel


def new_plan(requests: int, topics: int, rows: int) -> np.ndarray:
    """An empty plan with room for this many requests, topics and batches."""
    count = (
        words.HEAD_WORDS
        + words.REQUEST_WORDS * requests
        + words.TOPIC_WORDS * topics
        + words.ROW_WORDS * rows
    )
    plan = np.zeros(count, np.int64)
    plan[words.HEAD_REQUEST_CAPACITY] = requests
    plan[words.HEAD_TOPIC_CAPACITY] = topics
    plan[words.HEAD_ROW_CAPACITY] = rows
    plan[words.HEAD_TRANSACTIONS] = 1
    plan[words.HEAD_BUDGET] = words.STEP_BYTES
    return plan


@kernel
def request_at(i):
    """Where request i begins in the plan."""
    return words.HEAD_WORDS + words.REQUEST_WORDS * i


@kernel
def topic_at(plan, i):
    """Where topic i begins in the plan."""
    return (
        words.HEAD_WORDS
        + words.REQUEST_WORDS * plan[words.HEAD_REQUEST_CAPACITY]
        + words.TOPIC_WORDS * i
    )


@kernel
def row_at(plan, i):
    """Where row i begins in the plan."""
    topics = words.TOPIC_WORDS * plan[words.HEAD_TOPIC_CAPACITY]
    return (
        words.HEAD_WORDS
        + words.REQUEST_WORDS * plan[words.HEAD_REQUEST_CAPACITY]
        + topics
        + words.ROW_WORDS * i
    )
