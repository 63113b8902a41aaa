"""What lake engines find in a table with a filter is what the records that were sent have."""

import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from shm.kernels.twin import records as plain
from smq.sealer.lake import delta
from tests.sealer.lake.lake_kit import BEGIN_MS, Lake, lake_in

SCHEMA = json.dumps(
    {
        "fields": [
            {"name": "s", "type": "string"},
            {"name": "b", "type": "bool"},
            {"name": "n", "type": "int64"},
            {"name": "d", "type": "double"},
            {"name": "t", "type": "timestamp"},
            {"name": "far", "type": "string"},
            {
                "name": "st",
                "type": {
                    "struct": [{"name": "x", "type": "int64"}, {"name": "y", "type": "string"}]
                },
            },
            {"name": "l", "type": {"list": "string"}},
            {"name": "raw", "type": "bytes"},
            {"name": "day", "type": "date"},
            {"name": "dec", "type": "decimal"},
            {"name": "clock", "type": "time"},
        ]
    }
)
BOUND_BYTES = 5000  # Of a text whose bounds Parquet leaves out.


class Filter(NamedTuple):
    """A column, or a field of one, compared with a value; with none for `is` and `is not`."""

    path: tuple[str, ...]
    relation: str
    value: Any = None

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether it holds for a row, by SQL's rules."""
        found: Any = row
        for name in self.path:
            found = None if found is None else found.get(name)
        if self.relation in {"is", "is not"}:
            return (found is None) == (self.relation == "is")
        return found is not None and bool(RELATIONS[self.relation](found, self.value))


RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
    "in": lambda found, values: found in values,
}


def when(day: int) -> datetime:
    return datetime(2026, 1, day, tzinfo=UTC)


def filters() -> Iterator[Filter]:
    values: dict[str, Any] = {
        "s": "text12", "b": True, "n": 12, "d": 12.5, "t": when(13), "far": "f" * BOUND_BYTES,
        "_key": b"k1", "_offset": 6, "_ts": datetime.fromtimestamp(BEGIN_MS / 1000 + 6, UTC),
        "_ts_ms": BEGIN_MS + 6000, "partition": 1,
        "day": date(2026, 1, 13), "dec": Decimal("12.5" + "0" * 17), "clock": 12,
    }  # fmt: skip
    for name, value in values.items():
        for relation in "=", "<>", "<", ">=":
            if name != "b" or relation in {"=", "<>"}:
                yield Filter((name,), relation, value)
    for name, value in values.items():
        if name not in {"_key", "b"}:  # pyiceberg and Polars know no such sets.
            yield Filter((name,), "in", [value])
    yield Filter(("b",), "=", False)
    for field, value in (("x", 12), ("y", "y12")):
        yield Filter(("st", field), "=", value)
        yield Filter(("st", field), "<", value)
        yield Filter(("st", field), "is")
        yield Filter(("st", field), "is not")
    for name in (*values, "_value", "_headers", "st", "l", "raw"):
        yield Filter((name,), "is")
        yield Filter((name,), "is not")


FILTERS = list(filters())


def value_of(i: int) -> dict[str, Any]:
    if i % 4 == 3:
        return {}
    found = {
        "s": f"text{i}", "b": i % 2 == 0, "n": i, "d": i + 0.5, "t": when(1 + i).isoformat(),
        "st": {"x": i, "y": None if i == 10 else f"y{i}"}, "l": [f"l{i}"],
        "raw": "r", "day": f"2026-01-{1 + i:02}", "dec": f"{i}.5", "clock": i,
    }  # fmt: skip
    return found | ({"far": "f" * BOUND_BYTES} if i % 2 else {})


GROUPS: list[list[dict[str, Any]]] = [
    [value_of(i) for i in range(5)],
    [value_of(i) for i in range(10, 15)],
    [{}] * 4,
    [{"n": 99, "b": True, "s": "z"}],
    [{"b": False, "st": {"x": None, "y": None}}],
    [{"l": []}, {"t": when(20).isoformat()}],
]


def _same(value: Any) -> Any:
    return value


# How values that JSON has no type for are in a table.
TYPES: dict[str, Callable[[Any], Any]] = {
    "t": datetime.fromisoformat,
    "day": date.fromisoformat,
    "dec": Decimal,
    "raw": str.encode,
}


def seal_values(lake: Lake, partition: int, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seal records; returns what a table should have of them."""
    first = lake.manifest.sealed_end(lake.numbers[partition])
    sent, rows = [], []
    for offset, value in enumerate(values, first):
        key, time = (b"k%d" % offset if offset % 2 else None), BEGIN_MS + 1000 * offset
        sent.append(plain.PlainRecord(offset, time, key, json.dumps(value).encode(), ()))
        own: dict[str, Any] = {
            "partition": partition,
            "_offset": offset,
            "_key": key,
            "_ts_ms": time,
        }
        own |= {"_ts_ms": time, "_ts": datetime.fromtimestamp(time / 1000, UTC)}
        own |= {"_value": b"", "_headers": []}
        typed = value if lake.schema else {}
        rows.append(own | {name: TYPES.get(name, _same)(each) for name, each in typed.items()})
    lake.seal_batches(partition, [plain.batch(sent, end_offset=first + len(sent))])
    return rows


def seal_all(lake: Lake, *, late: bool) -> list[dict[str, Any]]:
    """Seal and publish GROUPS, and files without typed columns before them if these come late."""
    rows: list[dict[str, Any]] = []
    if late:
        rows += seal_values(lake, 0, [value_of(12)] * 3)
        lake.publish()
    lake.schema = SCHEMA
    for number, group in enumerate(GROUPS):
        rows += seal_values(lake, number % 2, group)
        if number == 3:
            lake.publish()
    lake.publish()
    return rows


Found = Iterable[tuple[int, int]]


def places(found: Any) -> Found:
    table = pa.table(found)
    return zip(table["partition"].to_pylist(), table["_offset"].to_pylist(), strict=True)


def in_arrow(each: Filter) -> pc.Expression:
    field = pc.field(*each.path)
    if each.relation in {"is", "is not"}:
        return field.is_null() if each.relation == "is" else field.is_valid()
    if each.relation == "in":
        return field.isin(each.value)
    value = each.value
    if isinstance(value, datetime):
        value = pa.scalar(value, pa.timestamp("us", "UTC"))
    named = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", ">=": "__ge__"}[each.relation]
    found: pc.Expression = getattr(field, named)(value)
    return found


def in_sql(each: Filter, time: str = "TIMESTAMPTZ ") -> str:
    name, *fields = each.path
    column = name + "".join(f"['{field}']" for field in fields)
    if each.relation in {"is", "is not"}:
        return f"{column} {each.relation} null"
    if each.relation == "in":
        return f"{column} in ({', '.join(literal(value, time) for value in each.value)})"
    return f"{column} {each.relation} {literal(each.value, time)}"


def literal(value: Any, time: str) -> str:
    match value:
        case datetime():
            return f"{time}'{value.isoformat()}'"
        case date():
            return f"{'DATE ' if time else ''}'{value.isoformat()}'"
        case bytes():
            return f"'{value.decode()}'"
        case str():
            return f"'{value}'"
    return str(value).lower()


def in_polars(each: Filter) -> pl.Expr:
    column = pl.col(each.path[0])
    for field in each.path[1:]:
        column = column.struct.field(field)
    if each.relation in {"is", "is not"}:
        return column.is_null() if each.relation == "is" else column.is_not_null()
    if each.relation == "in":
        return column.is_in(each.value)
    found: pl.Expr = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}[
        each.relation
    ](column, each.value)
    return found


Reader = Callable[[Filter], Found]


def delta_arrow(lake: Lake) -> Reader:
    table, columns = DeltaTable(lake.uri()), ["partition", "_offset"]
    return lambda each: places(table.to_pyarrow_table(filters=in_arrow(each), columns=columns))


def delta_datafusion(lake: Lake) -> Reader:
    database = QueryBuilder().register("t", DeltaTable(lake.uri()))
    return lambda each: places(database.execute(SELECT + in_sql(each)).read_all())


def delta_duckdb(lake: Lake) -> Reader:
    database = duckdb.connect()
    database.register("t", DeltaTable(lake.uri()).to_pyarrow_dataset())
    return lambda each: places(database.sql(SELECT + in_sql(each)).to_arrow_table())


def delta_polars(lake: Lake) -> Reader:
    table = pl.scan_delta(lake.uri())
    return lambda each: places(
        table.filter(in_polars(each)).select("partition", "_offset").collect().to_arrow()
    )


def iceberg_own(lake: Lake) -> Reader:
    table = lake.iceberg()

    def read(each: Filter) -> Found:
        if len(each.path) > 1 or each.path[0] in {"_key", "_headers", "st", "l"}:
            # It refuses fields, bytes, structs and lists in a filter: it reads everything.
            return places(table.scan().to_arrow().filter(in_arrow(each)))
        said = in_sql(each, "")
        if each.relation == "<>":  # In files that lack a column, it takes null for unlike.
            said += f" and {each.path[0]} is not null"
        return places(table.scan(said, selected_fields=("partition", "_offset")).to_arrow())

    return read


def iceberg_polars(lake: Lake) -> Reader:
    table = pl.scan_iceberg(lake.iceberg(), reader_override="pyiceberg")
    return lambda each: places(
        table.filter(in_polars(each)).select("partition", "_offset").collect().to_arrow()
    )


SELECT = "SELECT partition, _offset FROM t WHERE "
READERS = [
    delta_arrow,
    delta_datafusion,
    delta_duckdb,
    delta_polars,
    iceberg_own,
    iceberg_polars,
]


def assert_found(lake: Lake, rows: list[dict[str, Any]], reader: Callable[[Lake], Reader]) -> None:
    wrong, read = {}, reader(lake)
    for each in FILTERS:
        found = sorted(read(each))
        expected = sorted((row["partition"], row["_offset"]) for row in rows if each.holds(row))
        if found != expected:
            wrong[in_sql(each)[:80]] = found, expected
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["at once", "columns added later"])
@pytest.mark.parametrize("reader", READERS)
def test_every_filter_finds_what_was_sent(
    tmp_path: Path, reader: Callable[[Lake], Reader], late: bool
) -> None:
    """Use fault 3: deltalake found no row where a column lacked statistics that others had."""
    with lake_in(tmp_path, reader.__name__.partition("_")[0]) as lake:
        assert_found(lake, seal_all(lake, late=late), reader)


def test_a_delta_table_of_an_earlier_version_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use fault 3: its log keeps what it says of text, which readers then pass over."""
    with lake_in(tmp_path, "delta") as lake:
        with monkeypatch.context() as before:
            said = delta._CONFIGURATION.copy()
            del said["delta.dataSkippingStatsColumns"]
            before.setattr(delta, "_CONFIGURATION", said)
            told = delta.statistics_of

            def told_before(footer: Any) -> dict[str, Any]:
                found = told(footer)
                found["nullCount"] |= {"s": 1, "b": 1}
                return found

            before.setattr(delta, "statistics_of", told_before)
            rows = seal_all(lake, late=False)
            with pytest.raises(AssertionError):
                assert_found(lake, rows, delta_arrow)
        lake.publish(check=True)
        assert_found(lake, rows, delta_arrow)
        assert_found(lake, rows, delta_datafusion)
        version = DeltaTable(lake.uri()).version()
        lake.publish(check=True)
        assert DeltaTable(lake.uri()).version() == version, "once"
        DeltaTable(lake.uri()).create_checkpoint()
        assert_found(lake, rows, delta_arrow)


def test_filters_find_what_is_no_number(tmp_path: Path) -> None:
    """Use fault 3: a column's bounds leave NaN out. Engines take it for the greatest number, and
    passed over its rows."""
    with lake_in(tmp_path, "delta") as lake:
        lake.schema = SCHEMA
        seal_values(lake, 0, [{"d": 1.0}, {"d": math.nan}, {}])
        lake.publish()
        (file,) = tmp_path.rglob("*.parquet")
        for where in ("isnan(d)", "d > 5", "d = 'nan'", "d >= 'nan'", "NOT d <= 5"):
            found = duckdb.execute(f"SELECT _offset FROM '{file}' WHERE {where}").fetchall()
            assert found == [(1,)], where
        above = pl.scan_delta(lake.uri()).filter(pl.col("d") > 5).select("_offset").collect()
        assert above.rows() == [(1,)]
