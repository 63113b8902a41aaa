"""Times fall into buckets of powers of two."""

import pytest

from shm.kernels.base.times import bucket_of
from shm.kernels.base.words import TIME_BUCKETS


@pytest.mark.parametrize(
    ("took_ns", "bucket"),
    [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (4_000, 3), (10**15, TIME_BUCKETS - 1)],
)
def test_a_time_is_in_the_first_bucket_whose_bound_it_is_below(took_ns: int, bucket: int) -> None:
    assert bucket_of(took_ns) == bucket
