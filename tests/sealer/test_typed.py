"""Typed columns: what fits is there, the rest is counted, and no value harms its neighbours."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from smq.agent.proto.mq_schema_pb2 import RecordValue, Value as Recorded
from smq.model.record_columns import schema_of_record_type
from smq.sealer.typed import BLOCK_ROWS, Typing, are_objects, leaves, typed_columns

SCHEMA = json.dumps(
    {
        "fields": [
            {"name": "i", "type": "int64"},
            {"name": "f", "type": "double"},
            {"name": "s", "type": "string"},
            {"name": "b", "type": "bool"},
            {"name": "tags", "type": {"list": "string"}},
            {"name": "at", "type": {"struct": [{"name": "x", "type": "int32"}]}},
            {"name": "sent", "type": "timestamp", "from": "timestamp"},
        ]
    }
)
TYPING = Typing(SCHEMA)
NULLS = dict.fromkeys(TYPING.columns.names)


def typed(*values: bytes | None) -> tuple[list[dict[str, object]], int]:
    columns, misfits = TYPING.of(pa.chunked_array([pa.array(values, pa.binary())]))
    return pa.table(columns, schema=TYPING.columns).to_pylist(), misfits


def test_objects_become_columns() -> None:
    value = {
        "i": 7, "f": 1, "s": "Zürich", "b": True, "tags": ["a", None], "at": {"x": 3, "y": 1},
        "timestamp": "2026-01-02T03:04:05.5Z", "more": [1, {"a": None}],
    }  # fmt: skip
    when = datetime(2026, 1, 2, 3, 4, 5, 500_000, UTC)
    rows, misfits = typed(json.dumps(value).encode(), b"{}", None, b' {"i":\n8}\n')
    assert misfits == 0
    assert rows[0] == {
        "i": 7, "f": 1.0, "s": "Zürich", "b": True, "tags": ["a", None], "at": {"x": 3},
        "sent": when,
    }  # fmt: skip
    assert rows[1:] == [NULLS, NULLS, NULLS | {"i": 8}]


MISFITS = [
    b"", b" ", b"null", b"1", b'"text"', b"[]", b"{", b'{"i": 1} {"i": 2}', b'{"i": 1}null{"i": 2}',
    b'{"i": 1}, {"i": 2}', b"{}}", b'{"i": 1.5}', b'{"i": "1"}', b'{"i": 9223372036854775808}',
    b'{"f": "1"}', b'{"f": true}', b'{"f": 1e400}', b'{"s": 1}', b'{"s": "\xff"}',
    b'{"s": "\\ud800"}',
    b'{"b": 0}', b'{"tags": "a"}', b'{"tags": [1]}', b'{"at": []}', b'{"at": {"x": 3000000000}}',
    b'{"timestamp": 5}', b'{"timestamp": "yesterday"}', b'{"i": 1, "i": 2}', b"\xef\xbb\xbf{}",
    b"not } text", b'{"i":1}\x00', b'{"s": "a\x01b"}', b'{"i": ' + b"1" * 5000 + b"}",
    b'{"tags": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("value", MISFITS)
def test_a_value_that_does_not_fit_is_counted_and_spares_its_neighbours(value: bytes) -> None:
    rows, misfits = typed(b'{"i": 1}', value, b'{"i": 2}')
    assert misfits == 1
    assert rows == [NULLS | {"i": 1}, NULLS, NULLS | {"i": 2}]


TIME_TYPING = Typing(
    json.dumps(
        {
            "fields": [
                {"name": "t", "type": "timestamp"},
                {"name": "at", "type": {"struct": [{"name": "u", "type": "timestamp"}]}},
                {"name": "all", "type": {"list": "timestamp"}},
            ]
        }
    )
)


@pytest.mark.parametrize(
    "value",
    [
        b'{"t": "0000-12-31T23:59:59Z"}',
        b'{"t": "0001-01-01T00:00:00+01:00"}',
        b'{"t": "9999-12-31T23:59:59-01:00"}',
        b'{"at": {"u": "0000-01-01"}}',
        b'{"all": ["2026-01-01", "0000-01-01"]}',
        pytest.param(2**60, id="stream"),
    ],
)
def test_a_time_outside_the_years_1_to_9999_does_not_fit(value: bytes | int) -> None:
    """Use fault 5: one such time in a column ended the publishing of its table."""
    if isinstance(value, int):
        value = stream(pa.table({"t": pa.array([value], pa.timestamp("us", "UTC"))}))
    values = [b'{"t": "0001-01-01"}', value, b'{"t": "9999-12-31T23:59:59.999999"}']
    columns, misfits = TIME_TYPING.of(pa.chunked_array([pa.array(values, pa.binary())]))
    assert misfits == 1
    assert columns[0].to_pylist() == [
        datetime(1, 1, 1, tzinfo=UTC),
        None,
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ]


def test_braces_in_texts_are_looked_at_again() -> None:
    value = b'{"s": "} {", "i": 1}'
    assert not are_objects(pa.array([value]))
    assert typed(value) == ([NULLS | {"s": "} {", "i": 1}], 0)


def test_deep_values_beside_the_columns_are_no_harm() -> None:
    value = b'{"i": 5, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert typed(value, b"1") == ([NULLS | {"i": 5}, NULLS], 1)


def test_many_rows_with_a_few_misfits_keep_their_order() -> None:
    count = 2 * BLOCK_ROWS + 17
    values = [b'{"i": %d}' % n if n % 1000 else b'{"i": "%d"}' % n for n in range(count)]
    rows, misfits = typed(*values)
    assert misfits == 9
    assert [row["i"] for row in rows] == [n if n % 1000 else None for n in range(count)]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_an_arrow_stream_of_one_row_is_typed_too() -> None:
    one = stream(pa.table({"i": pa.array([7], pa.int32()), "more": ["x"]}))
    two, other = stream(pa.table({"i": [1, 2]})), stream(pa.table({"i": ["text"]}))
    rows, misfits = typed(b'{"i": 1}', one, two, other, one[:-60], b'{"i": 2}')
    assert misfits == 3
    assert [row["i"] for row in rows] == [1, 7, None, None, None, 2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["i", "f", "s", "b", "tags", "at", "x"]), inner, max_size=4
        )
    ),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode())


@settings(max_examples=200)
@given(st.lists(JSON | st.binary(max_size=12) | st.sampled_from(MISFITS[:30]), max_size=8))
def test_whether_a_row_fits_depends_on_no_other(values: list[bytes]) -> None:
    rows, misfits = typed(*values)
    alone = [typed(value) for value in values]
    assert repr(rows) == repr([each for one, _ in alone for each in one])
    assert misfits == sum(count for _, count in alone)


def test_columns_have_paths_in_a_file() -> None:
    assert typed_columns("") is None
    assert leaves(None) == []
    assert leaves(typed_columns(SCHEMA))[-3:] == ["tags.list.element", "at.x", "sent"]


ITEMS = json.dumps(
    {
        "fields": [
            {
                "name": "items",
                "type": {
                    "list": {"struct": [{"name": f"c{n}", "type": "int64"} for n in range(50)]}
                },
            }
        ]
    }
)


@pytest.mark.parametrize("item", [b"{}", b"null"])
def test_items_of_lists_of_objects_are_counted_with_all_their_columns(item: bytes) -> None:
    """Door fault 6: a value of some MiB, `[{},{},…]`, took gigabytes as columns; compressed, it has
    some hundred bytes."""
    many = b",".join([item] * 700_000)
    light, heavy = b'{"items":[{"c1":7}]}', b'{"items":[' + many + b"]}"
    typing = Typing(ITEMS)
    for values in ([light, heavy, light], [heavy], [light] * 3):
        columns, misfits = typing.of(pa.chunked_array([pa.array(values, pa.binary())]))
        assert misfits == values.count(heavy)
        found = columns[0].to_pylist()
        assert [each is None for each in found] == [value == heavy for value in values]


def test_typed_columns_are_made_in_parts_of_bounded_size() -> None:
    """Door fault 6."""
    middle = b'{"items":[' + b"{}," * 50_000 + b"{}]}"
    rows = pa.table({"n": range(12), "v": pa.array([middle, None, b"{}"] * 4, pa.binary())})
    parts = list(Typing(ITEMS).widened(rows, "v"))
    assert [misfits for _, misfits in parts] == [0] * len(parts)
    assert all(part.nbytes < 128 * 1024 * 1024 for part, _ in parts)
    assert pa.concat_tables([part for part, _ in parts])["n"].to_pylist() == list(range(12))
    assert len(parts) > 1
    assert [len(part) for part, _ in Typing(SCHEMA).widened(rows, "v")] == [12]


def test_rows_of_many_columns_are_made_in_parts_too() -> None:
    """Door fault 6: each row has all columns, also where its value has two bytes."""
    wide = json.dumps({"fields": [{"name": f"c{n}", "type": "int64"} for n in range(200)]})
    rows = pa.table({"v": pa.array([b"{}"] * 100_000, pa.binary())})
    parts = list(Typing(wide).widened(rows, "v"))
    assert sum(len(part) for part, _ in parts) == 100_000
    assert all(part.nbytes < 128 * 1024 * 1024 for part, _ in parts)


def test_an_arrow_value_with_many_braces_fits() -> None:
    """Its columns take what it inflates to, whatever its texts are."""
    typing = Typing(ITEMS)
    row = pa.record_batch({"items": pa.array([[{"c1": 7}]]), "text": pa.array(["{" * 1_000_000])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    value = sink.getvalue().to_pybytes()
    columns, misfits = typing.of(pa.chunked_array([pa.array([value], pa.binary())]))
    assert misfits == 0
    assert columns[0].to_pylist()[0][0]["c1"] == 7


def test_small_arrow_values_that_inflate_are_made_in_parts() -> None:
    """Door fault 6: a list of 8,000 zeros has some hundred bytes."""
    schema = json.dumps({"fields": [{"name": "zeros", "type": {"list": "int64"}}]})
    row = pa.record_batch({"zeros": pa.array([[0] * 8_000])})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, row.schema, options=options) as writer:
        writer.write_batch(row)
    value = sink.getvalue().to_pybytes()
    assert len(value) < 1000
    rows = pa.table({"v": pa.array([value] * 3_000, pa.binary())})
    count = 0
    for part, misfits in Typing(schema).widened(rows, "v"):
        assert (part.nbytes < 128 * 1024 * 1024, misfits) == (True, 0)
        count += len(part)
    assert count == 3_000


MORE = json.dumps(
    {
        "fields": [
            {"name": "raw", "type": "bytes"},
            {"name": "day", "type": "date"},
            {"name": "price", "type": "decimal"},
            {"name": "at", "type": {"list": "time"}},
        ]
    }
)


def test_dates_decimals_times_and_bytes_of_json_and_arrow() -> None:
    typing = Typing(MORE)
    json_ = b'{"raw": "\xc3\xbc", "day": "2026-01-02", "price": "1.23", "at": [1, null]}'
    arrow = stream(
        pa.table(
            {
                "raw": [b"\xff"],
                "day": [date(9999, 12, 31)],
                "price": [Decimal("1.5")],
                "at": pa.array([[1000]], pa.list_(pa.time64("ns"))),
            }
        )
    )
    misfits = [
        *(b'{"day": "0000-01-01"}', b'{"day": "yesterday"}', b'{"day": 1}'),
        *(b'{"at": [86400000000]}', b'{"at": [-1]}', b'{"at": ["01:00"]}'),
        *(b'{"price": "x"}', b'{"price": 1e40}', b'{"price": true}', b'{"raw": 1}'),
    ]
    columns, count = typing.of(pa.chunked_array([pa.array([json_, *misfits, arrow])]))
    assert count == len(misfits)
    rows = pa.table(columns, schema=typing.columns).to_pylist()
    first = {
        "raw": "ü".encode(),
        "day": date(2026, 1, 2),
        "price": Decimal("1.23"),
        "at": [1, None],
    }
    assert rows[0] == first
    last = {"raw": b"\xff", "day": date(9999, 12, 31), "price": Decimal("1.5"), "at": [1]}
    assert rows[-1] == last


def test_record_values_are_typed_in_parts_and_misfits_are_kept() -> None:
    schema = schema_of_record_type('{"fields": [{"name": "n", "type": "INT32"}]}')
    typing = Typing(schema)
    large = bytes(
        RecordValue(fields={"o": Recorded(bytes_value=bytes(9 * 2**20))}).SerializeToString()
    )
    values = [
        bytes(RecordValue(fields={"n": Recorded(int32_value=n)}).SerializeToString())
        for n in range(3)
    ]
    values[1:1] = [b'{"n": 1}', large]
    columns, count = typing.of(pa.chunked_array([pa.array([*values, None], pa.binary())]))
    assert columns[0].to_pylist() == [0, None, None, 1, 2, None]
    assert count == 2
