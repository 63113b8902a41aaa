"""Numbers that a log may have written, and others."""

import numpy as np
import pytest

from shm.kernels.log.producers import PRODUCER_COLUMNS, R_BATCH_COUNT, R_EPOCH
from smq.log.files.bounds import require, require_all, require_producers, require_transactions

NONE = np.zeros((0, 5), np.int64)


@pytest.mark.parametrize("value", [-1, 6, True, 1.0, "1", None, [1]])
def test_a_value_that_is_no_number_within_the_bounds_is_refused(value: object) -> None:
    require([0, 5], (0, 5))
    with pytest.raises(ValueError, match="bounds"):
        require([0, value], (0, 5))


def test_each_number_of_a_column_must_be_within_the_bounds() -> None:
    require_all(np.zeros(0, np.int64), (1, 2))
    require_all(np.array([1, 2]), (1, 2))
    with pytest.raises(ValueError, match="bounds"):
        require_all(np.array([1, 3, 2]), (1, 2))


@pytest.mark.parametrize(("column", "value"), [(R_BATCH_COUNT, 6), (R_EPOCH, 2**15)])
def test_a_producers_row_of_no_log_is_refused(column: int, value: int) -> None:
    rows = np.zeros((2, PRODUCER_COLUMNS), np.int64)
    require_producers(rows)
    rows[1, column] = value
    with pytest.raises(ValueError, match="bounds"):
        require_producers(rows)


def test_a_transactions_row_of_no_log_is_refused() -> None:
    opened, aborted = np.array([[7, 11, 0, 3, -5]]), np.array([[7, 11, 0, 3, 5]])
    require_transactions(opened, aborted, (0, 100))
    with pytest.raises(ValueError, match="bounds"):
        require_transactions(NONE, opened, (0, 100))
    with pytest.raises(ValueError, match="bounds"):
        require_transactions(aborted, NONE, (0, 2))
