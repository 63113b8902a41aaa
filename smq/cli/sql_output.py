"""Writes query results: a text table, CSV, JSON lines, or a Parquet file."""

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from smq.cli import output
from smq.cli.client import refusal, to_json
from smq.sql.values import json_number, rows_of

if TYPE_CHECKING:
    from smq.cli.output import Format

TABLE_ROWS_MAX = 1_000
WIDTH_MAX = 10_000
_CSV_QUOTED = frozenset(',"\r\n')

Write = Callable[[pa.RecordBatchReader], None]


@contextmanager
def writer(output_format: "Format", path: Path | None) -> Iterator[Write]:
    """A function that writes the rows of a result; results are appended."""
    try:
        if output_format == "parquet":
            assert path is not None
            with _parquet(path) as write:
                yield write
            return
        file = None if path is None else path.open("wb")
        line = _to_output if file is None else file.write
        try:
            yield {"table": _table, "csv": _csv, "json": _json}[output_format](line)
        finally:
            if file is not None:
                file.close()
            else:
                output.flush()
    except OSError as error:
        raise refusal(f"{path} cannot be written: {error.strerror}") from error


def _to_output(data: bytes) -> None:
    output.write(data, at_once=False)


def _table(put: Callable[[bytes], object]) -> Write:
    def write(rows: pa.RecordBatchReader) -> None:
        table = Table(*(str(name) for name in rows.schema.names), box=box.SIMPLE, show_edge=False)
        for count, row in enumerate(_all_rows(rows)):
            if count == TABLE_ROWS_MAX:
                sys.stderr.write(
                    f"smq: the first {TABLE_ROWS_MAX} rows; use LIMIT, or --format csv for all\n"
                )
                break
            table.add_row(*("" if value is None else _text(value) for value in row))
        text = io.StringIO()
        Console(file=text, width=WIDTH_MAX, markup=False, highlight=False).print(table)
        lines = (line.rstrip() for line in text.getvalue().splitlines())
        put("\n".join(lines).encode(errors="replace") + b"\n")
        output.flush()

    return write


def _csv(put: Callable[[bytes], object]) -> Write:
    has_head = False

    def write(rows: pa.RecordBatchReader) -> None:
        nonlocal has_head
        if not has_head:
            put(_csv_line(rows.schema.names))
            has_head = True
        for row in _all_rows(rows):
            put(_csv_line(None if value is None else _text(value) for value in row))

    return write


def _csv_line(fields: Iterable[str | None]) -> bytes:
    """A line of RFC 4180, but for its LF alone; as PostgreSQL's, an empty text is quoted, and null
    is nothing."""
    texts = ("" if each is None else _quoted(each) for each in fields)
    return ",".join(texts).encode(errors="replace") + b"\n"


def _quoted(text: str) -> str:
    if text and _CSV_QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _json(put: Callable[[bytes], object]) -> Write:
    def write(rows: pa.RecordBatchReader) -> None:
        names = rows.schema.names
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise refusal(f"the result has several columns {repeated[0]}; name them with AS")
        for row in _all_rows(rows):
            line = dict(zip(names, map(_plain, row), strict=True))
            put(json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n")

    return write


@contextmanager
def _parquet(path: Path) -> Iterator[Write]:
    opened: list[pq.ParquetWriter] = []

    def write(rows: pa.RecordBatchReader) -> None:
        if not opened:
            opened.append(pq.ParquetWriter(path, rows.schema))
        for batch in rows:
            opened[0].write_batch(batch)

    try:
        yield write
    finally:
        for each in opened:
            each.close()


def _all_rows(rows: pa.RecordBatchReader) -> Iterator[tuple[object, ...]]:
    for batch in rows:
        yield from rows_of(batch)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> object:
    """A JSON value: times in ISO 8601, bytes as `smq consume --json` writes them."""
    if isinstance(value, float):
        value = json_number(value)
    match value:
        case bytes():
            return to_json(value)
        case datetime() | date():
            return value.isoformat()
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)
