"""Typed columns in SQL: from files that have them, files that do not, and records not sealed."""

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.sql.typed import quoted, typed_names, widened, with_typed
from smq.tables.live import TooMuch

MiB = 1024 * 1024
SCHEMA = json.dumps(
    {
        "fields": [
            {"name": "price", "type": "double"},
            {"name": "tags", "type": {"list": "string"}},
            {"name": "buyer", "type": {"struct": [{"name": "id", "type": "int64"}]}},
            {"name": "sent", "type": "timestamp", "from": "timestamp"},
        ]
    }
)


def test_a_topic_without_a_schema_is_as_it_was() -> None:
    rows = pa.table({"value": pa.array([b"1"])})
    assert with_typed(rows, "", 0) is rows
    assert typed_names("") == ""
    assert widened("t", "") == "t"


def test_rows_of_all_ages_are_one_table(tmp_path: Path) -> None:
    values = [b'{"price": 1.5, "tags": ["a"], "buyer": {"id": 3}}', b"no JSON", None]
    rows = with_typed(pa.table({"value": pa.array(values)}), SCHEMA, MiB)
    old, new = f"{tmp_path}/old.parquet", f"{tmp_path}/new.parquet"
    pq.write_table(rows.select(["value"]), old)
    pq.write_table(rows, new)
    for files, known in (([old], 0), ([new], 1), ([old, new], 1)):
        source = widened(f"read_parquet({files}, union_by_name=true)", SCHEMA)
        with duckdb.connect() as database:
            found = database.execute(f"SELECT 0{typed_names(SCHEMA)} FROM {source}").fetchall()
        assert len(found) == 3 * len(files)
        typed = [row[1:] for row in found if row[1] is not None]
        assert typed == [(1.5, ["a"], {"id": 3}, None)] * known
    with duckdb.connect() as database:
        database.register("live", rows)
        names = database.execute(f"DESCRIBE SELECT 0{typed_names(SCHEMA)} FROM live").fetchall()
    assert [row[1] for row in names[1:]] == [
        "DOUBLE",
        "VARCHAR[]",
        "STRUCT(id BIGINT)",
        "TIMESTAMP",
    ]


def test_each_type_has_its_own_in_sql() -> None:
    types = ["bytes", "date", "decimal", "time", "timestamp"]
    schema = json.dumps({"fields": [{"name": f"a_{each}", "type": each} for each in types]})
    value = {
        "a_bytes": "ü", "a_date": "2026-01-02", "a_decimal": "-1.23", "a_time": 3_600_000_005,
        "a_timestamp": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    rows = with_typed(pa.table({"value": pa.array([json.dumps(value).encode()])}), schema, MiB)
    with duckdb.connect() as database:
        database.register("live", rows)
        select = f"SELECT 0{typed_names(schema)} FROM live"
        [row] = database.execute(select).fetchall()
        names = database.execute(f"DESCRIBE {select}").fetchall()
    when = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  (DuckDB's have no zone.)
    known = "ü".encode(), date(2026, 1, 2), Decimal("-1.23"), 3_600_000_005, when
    assert row[1:] == known
    sql_types = ["BLOB", "DATE", "DECIMAL(38,18)", "BIGINT", "TIMESTAMP"]
    assert [each[1] for each in names[1:]] == sql_types


def test_quotes_are_doubled() -> None:
    assert quoted('a"b') == '"a""b"'


def test_typed_columns_beyond_the_memory_of_a_query_are_refused() -> None:
    """Door fault 6."""
    wide = json.dumps({"fields": [{"name": f"c{n}", "type": "int64"} for n in range(100)]})
    rows = pa.table({"value": pa.array([b"{}"] * 10_000)})
    assert with_typed(rows, wide, 10 * MiB).num_rows == 10_000
    with pytest.raises(TooMuch, match="typed columns"):
        with_typed(rows, wide, 5 * MiB)
