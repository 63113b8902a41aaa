"""The times that lake engines have."""

import numpy as np
import pyarrow as pa
import pytest

from smq.sealer.years import (
    TIME_MS_MAX,
    TIME_MS_MIN,
    TIMESTAMP,
    has_years,
    timestamps,
    within_years,
)


def test_a_time_is_a_timestamp_or_null() -> None:
    times = np.array([TIME_MS_MIN - 1, TIME_MS_MIN, 0, TIME_MS_MAX, TIME_MS_MAX + 1, 2**63 - 1])
    found = timestamps(times)
    assert found.type == TIMESTAMP
    assert found.is_valid().to_pylist() == [False, True, True, True, False, False]
    assert [each.year for each in found.drop_null().to_pylist()] == [1, 1970, 9999]
    assert timestamps(times[:0]).to_pylist() == []
    assert timestamps(times[1:4]).null_count == 0


def test_the_nearest_time_is_one_that_python_has() -> None:
    ends = pa.array([within_years(-(2**63)), within_years(2**63 - 1)]).view(TIMESTAMP)
    assert [(each.year, each.microsecond) for each in ends.to_pylist()] == [(1, 0), (9999, 999_999)]


@pytest.mark.parametrize("time", [None, TIME_MS_MIN * 1000, TIME_MS_MAX * 1000 + 999])
@pytest.mark.parametrize("off", [0, -1, 1])
def test_columns_are_searched_in_all_their_depth(time: int | None, off: int) -> None:
    is_out = time is not None and within_years(time + off) != time + off
    times = pa.array([None if time is None else time + off, None]).cast(pa.int64()).view(TIMESTAMP)
    row = pa.StructArray.from_arrays([times, pa.array([1, 2])], ["t", "n"])
    deep = pa.ListArray.from_arrays([0, 2, 2], row)
    for column in times, row, deep, pa.StructArray.from_arrays([deep], ["l"]):
        assert has_years(pa.chunked_array([column])) is not is_out
    assert has_years(pa.chunked_array([["a"]]))
