"""Which offsets a filter may let through: never too few."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, strategies as st

from smq.sql.wanted import APART_MAX, PLACE, Range, first_time_ms, wanted_ranges

COLUMNS = pa.schema([*PLACE, pa.field("key", pa.binary())])
PARTITION, OFFSET, TIME = (ds.field(name) for name in ("partition", "offset", "timestamp"))
RANGES = {0: (0, 1000), 1: (5, 1 << 40), 2: (7, 7)}
WHOLE = {0: (0, 1000), 1: (5, 1 << 40)}
NEW_YEAR_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
NEW_YEAR = pa.scalar(NEW_YEAR_MS * 1000, pa.timestamp("us"))


@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        (None, WHOLE),
        (ds.field("key") == b"x", WHOLE),
        (OFFSET == 5, {0: (5, 6), 1: (5, 6)}),
        ((OFFSET >= 250) & (OFFSET <= 420), {0: (250, 421), 1: (250, 421)}),
        ((OFFSET >= 250) & (ds.field("key") == b"x"), {0: (250, 1000), 1: (250, 1 << 40)}),
        (OFFSET.isin([3, 700]), {0: (3, 701), 1: (700, 701)}),
        ((OFFSET < 10) | (OFFSET > 900), WHOLE),
        (OFFSET < 0, {}),
        ((PARTITION == 1) & (OFFSET <= 10), {1: (5, 11)}),
        (PARTITION.isin([2, 3]), {}),
        (~(PARTITION == 1), {0: (0, 1000)}),
        (
            ((PARTITION == 0) & (OFFSET >= 990)) | ((PARTITION == 1) & (OFFSET < 7)),
            {0: (990, 1000), 1: (5, 7)},
        ),
    ],
    ids=str,
)
def test_ranges_are_cut_to_what_a_filter_may_keep(
    wanted: ds.Expression | None, ranges: dict[int, Range]
) -> None:
    assert wanted_ranges(COLUMNS, wanted, RANGES) == ranges


def test_a_list_as_duckdb_hands_it_on_cuts_ranges() -> None:
    listed = pc.if_else(pc.is_valid(OFFSET), OFFSET.isin([8, 9]), pa.scalar(None, pa.bool_()))
    assert wanted_ranges(COLUMNS, listed, RANGES) == {0: (8, 10), 1: (8, 10)}


def test_many_partitions_are_bounded_alike() -> None:
    ranges = {each: (each, 1 << 40) for each in range(3 * APART_MAX)}
    found = wanted_ranges(COLUMNS, (OFFSET >= 20) & (OFFSET < 40), ranges)
    assert found == {each: (max(20, each), 40) for each in range(40)}
    assert first_time_ms(COLUMNS, TIME >= NEW_YEAR, ranges) == NEW_YEAR_MS


@pytest.mark.parametrize(
    ("wanted", "first_ms"),
    [
        (TIME >= NEW_YEAR, NEW_YEAR_MS),
        (TIME == NEW_YEAR, NEW_YEAR_MS),
        ((TIME >= NEW_YEAR) & (OFFSET < 10), NEW_YEAR_MS),
        (TIME < NEW_YEAR, None),
        (TIME.is_null(), None),
        (TIME.is_null() | (TIME >= NEW_YEAR), None),
        ((TIME >= NEW_YEAR) | (OFFSET < 10), None),
        (OFFSET < 10, None),
        (None, None),
    ],
    ids=str,
)
def test_a_lower_bound_of_time_is_found_unless_a_null_may_pass(
    wanted: ds.Expression | None, first_ms: int | None
) -> None:
    assert first_time_ms(COLUMNS, wanted, WHOLE) == first_ms


@given(
    st.lists(
        st.tuples(st.sampled_from(["<", "<=", "==", "!=", ">=", ">"]), st.integers(-2, 22)),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_no_row_that_a_filter_keeps_is_outside_of_the_ranges(
    bounds: list[tuple[str, int]], are_alternatives: list[bool]
) -> None:
    compare = {
        "<": OFFSET.__lt__, "<=": OFFSET.__le__, "==": OFFSET.__eq__,
        "!=": OFFSET.__ne__, ">=": OFFSET.__ge__, ">": OFFSET.__gt__,
    }  # fmt: skip
    wanted = compare[bounds[0][0]](bounds[0][1])
    for (sign, bound), is_alternative in zip(bounds[1:], are_alternatives, strict=False):
        other = compare[sign](bound)
        wanted = wanted | other if is_alternative else wanted & other
    rows = pa.table({"offset": pa.array(range(20), pa.int64())})
    kept = rows.filter(wanted)["offset"].to_pylist()
    start, end = wanted_ranges(COLUMNS, wanted, {0: (0, 20)}).get(0, (0, 0))
    assert all(start <= each < end for each in kept)
