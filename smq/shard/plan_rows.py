"""The rows of a plan (shm.kernels.log.plan) as Python sees them: which request they are of, and
what is known of those that are done.

    done   int64, a row for each batch: a word for each of DONE_WORDS
"""

from collections.abc import Iterable

import numpy as np

from shm.kernels.base import words
from shm.kernels.log.plan import request_at, row_at, topic_at
from smq.log.log import Log

DONE_WORDS = (
    words.ROW_STATE,
    words.ROW_ERROR,
    words.ROW_BASE_OFFSET,
    words.ROW_APPEND_TIME,
    words.ROW_LOG_START,
)
DONE_STATE = 0  # Its place in a row of `done`.


def rows_of(plan: np.ndarray) -> np.ndarray:
    """The rows, [rows, ROW_WORDS]; lent."""
    start, count = int(row_at(plan, 0)), int(plan[words.HEAD_ROW_COUNT])
    return plan[start : start + words.ROW_WORDS * count].reshape(count, words.ROW_WORDS)


def first_row(plan: np.ndarray, request: int) -> int:
    """The number of a request's first row; of one behind the last: how many rows there are."""
    for number in range(request, int(plan[words.HEAD_REQUEST_COUNT])):
        at = int(request_at(number))
        if plan[at + words.REQUEST_TOPIC_COUNT]:
            return int(plan[topic_at(plan, plan[at + words.REQUEST_TOPIC]) + words.TOPIC_ROW])
    return int(plan[words.HEAD_ROW_COUNT])


def request_of(plan: np.ndarray, row: int) -> int:
    """The request that a row belongs to."""
    count = int(plan[words.HEAD_REQUEST_COUNT])
    return next(each for each in range(count) if row < first_row(plan, each + 1))


def done_rows(rows: np.ndarray) -> np.ndarray:
    """What is known of these rows."""
    done = rows[:, DONE_WORDS]
    done[:, DONE_STATE] = rows[:, words.ROW_STATE] == words.DONE
    return done


def restore_rows(rows: np.ndarray, done: np.ndarray) -> None:
    """Set those of the rows that are done, after their requests were parsed again."""
    assert len(rows) == len(done), "one batch would be acked for another"
    where = np.flatnonzero(done[:, DONE_STATE])
    rows[where[:, None], DONE_WORDS] = done[where]


def closed_rows(rows: np.ndarray, logs: Iterable[Log]) -> np.ndarray:
    """The numbers of the rows that are not done and whose partition takes no appends now."""
    codes, waiting = rows[:, words.ROW_CODE], rows[:, words.ROW_STATE] != words.DONE
    closed = np.zeros(len(rows), np.bool_)
    for log in logs:
        ours = np.flatnonzero(waiting & (codes >> 32 == log.number))
        flags = log.partitions.table[codes[ours] & 0xFFFFFFFF, words.P_FLAGS]
        closed[ours] = (flags & words.FLAG_CLOSED) != 0
    return np.flatnonzero(closed)
