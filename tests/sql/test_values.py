"""What DuckDB has and Python has not."""

from datetime import date, datetime
from typing import Any

import duckdb
import pytest

from smq.sql.values import rows_of

FAR = "20000-01-02T03:04:05.000000"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("TIMESTAMP '20000-01-02 03:04:05'", FAR),
        ("TIMESTAMPTZ '20000-01-02 03:04:05+00'", f"{FAR}+0000"),
        ("TIMESTAMP '4713-01-01 (BC)'", "-4712-01-01T00:00:00.000000"),
        ("DATE '20000-01-01'", "20000-01-01"),
        ("'infinity'::TIMESTAMP", str(2**63 - 1)),
        ("'-infinity'::DATE", str(-(2**31) + 1)),
        ("make_timestamp_ns(5)", "1970-01-01T00:00:00.000000005"),
        (
            "{'x': TIMESTAMP '20000-01-02 03:04:05', 'l': [DATE '2026-01-02', NULL]}",
            {"x": FAR, "l": [date(2026, 1, 2), None]},
        ),
        ("MAP {'k': TIMESTAMP '20000-01-02 03:04:05'}", [("k", FAR)]),
        ("array_value(TIMESTAMP '20000-01-02 03:04:05')", [FAR]),
        ("(TIMESTAMP '20000-01-02 03:04:05')::UNION(n INT, t TIMESTAMP)", FAR),
    ],
)
def test_a_time_that_python_has_not_is_text(expression: str, value: Any) -> None:
    """Use fault 5: `smq sql` ended with a traceback."""
    with duckdb.connect() as database:
        reader = database.sql(f"SELECT {expression} AS a, 7 AS n").to_arrow_reader(10)
        assert [row for batch in reader for row in rows_of(batch)] == [(value, 7)]


def test_other_rows_have_what_python_has() -> None:
    with duckdb.connect() as database:
        query = "SELECT unnest([TIMESTAMP '2026-01-02', NULL, TIMESTAMP '20000-01-01']) AS a"
        [batch] = database.sql(query).to_arrow_reader(10)
        assert [row[0] for row in rows_of(batch)] == [
            datetime(2026, 1, 2), None, "20000-01-01T00:00:00.000000"  # noqa: DTZ001
        ]  # fmt: skip
        assert list(rows_of(batch.slice(0, 0))) == []
