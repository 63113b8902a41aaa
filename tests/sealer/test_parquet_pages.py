"""Columns read value by value, as Arrow reads them at once."""

import io
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.sealer.parquet import HEADER_KEYS, HEADER_VALUES, SCHEMA
from smq.sealer.parquet_pages import ColumnReader, PageValues, Shape, longest_in_dictionary

PLACES = {
    "_key": (3, Shape(0, 1)),
    "_value": (4, Shape(0, 1)),
    HEADER_KEYS: (5, Shape(1, 1)),
    HEADER_VALUES: (6, Shape(1, 2)),
}


def _rows(seed: int, count: int) -> list[dict[str, object]]:
    """Rows with nulls, empty and long fields, and any number of headers."""
    random, rows = Random(seed), list[dict[str, object]]()

    def field() -> bytes | None:
        size = random.choice([0, 1, 30, 3000])
        return None if random.random() < 0.2 else random.randbytes(size)

    for _ in range(count):
        names = [random.choice(["a", "b" * 50, f"{random.random()}"]) for _ in range(9)]
        headers = [{"key": name, "value": field()} for name in names[: random.choice([0, 1, 9])]]
        rows.append({"_key": field(), "_value": field(), "_headers": headers})
    return rows


def _file(rows: list[dict[str, object]], **options: object) -> memoryview:
    table = pa.table(
        [
            *(pa.array([0] * len(rows), SCHEMA.field(name).type) for name in SCHEMA.names[:3]),
            *(pa.array([row[n] for row in rows], SCHEMA.field(n).type) for n in SCHEMA.names[3:]),
        ],
        schema=SCHEMA,
    )
    file = io.BytesIO()
    settings = {"compression": "zstd", "use_dictionary": [HEADER_KEYS], "write_page_index": True}
    with pq.ParquetWriter(file, SCHEMA, **(settings | options)) as writer:
        writer.write_table(table)
    return memoryview(file.getvalue())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "none"},
        {"data_page_size": 100, "write_batch_size": 7},
        {"dictionary_pagesize_limit": 200, "data_page_size": 1000},
        {"use_dictionary": False},
    ],
    ids=["usual", "uncompressed", "small pages", "dictionary given up", "no dictionary"],
)
def test_values_are_those_that_arrow_reads(options: dict[str, object]) -> None:
    """Data fault 12: pages of 2 GiB are read without inflating them at once."""
    rows = _rows(3, 2500)
    data = _file(rows, **options)
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    for path, (place, shape) in PLACES.items():
        for first in (0, 1, 1300, 2499):
            values, column = ColumnReader(data, group.column(place), shape), PageValues()
            values.skip(first)
            counts = [values.row_into(column) for _ in range(first, len(rows))]
            found = column.array().to_pylist()
            headers = [row["_headers"] for row in rows[first:]]
            if shape.repetition_max:
                assert counts == [len(each) for each in headers]  # type: ignore[arg-type]
                name = "key" if path == HEADER_KEYS else "value"
                wanted = [pair[name] for each in headers for pair in each]  # type: ignore[attr-defined]
                assert found == [w.encode() if isinstance(w, str) else w for w in wanted]
            else:
                assert set(counts) == {1}
                assert found == [row[path] for row in rows[first:]]


def test_the_longest_of_a_dictionary_is_known() -> None:
    headers = [[{"key": "x" * size, "value": None}] for size in range(9)]
    rows: list[dict[str, object]] = [
        {"_key": None, "_value": None, "_headers": each} for each in headers
    ]
    for dictionary, longest in (([HEADER_KEYS], 8), ([], 0)):
        data = _file(rows, use_dictionary=dictionary)
        group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
        assert longest_in_dictionary(data, group.column(5)) == longest


def test_a_column_that_ends_too_early_is_damage() -> None:
    data = _file(_rows(3, 10))
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    values = ColumnReader(data, group.column(4), Shape(0, 1))
    values.skip(10)
    with pytest.raises(pa.ArrowInvalid, match="ends before its rows"):
        values.row_into(PageValues())
