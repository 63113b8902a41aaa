"""Tables, arrays and lists become the same columns; errors name the column."""

from collections import deque
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from smq.client.producing.encode import batch_input
from smq.client.producing.encode.batch_input import ABSENT, pieces_of
from smq.client.producing.encode.columns import Field

ITEMS = st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=20)
KINDS = (pa.binary(), pa.large_binary(), pa.binary_view())


def items(field: Field | None) -> list[bytes | None]:
    assert field is not None
    assert not field.data.flags.writeable  # As kernels are compiled for.
    return [
        None if length < 0 else field.data[at : at + length].tobytes()
        for at, length in zip(*field.places, strict=True)
    ]


def column(batch: Any, name: str) -> list[Any]:
    found: list[Any] = []
    for piece in pieces_of(batch):
        if name in {"timestamps", "partitions"}:
            numbers = getattr(piece, name).tolist()
            found += [None if each == ABSENT else each for each in numbers]
        else:
            found += items(getattr(piece, name))
    return found


@settings(deadline=None)
@given(ITEMS, st.sampled_from(KINDS), st.integers(0, 3), st.integers(1, 5))
def test_arrow_values_come_through_slices_and_chunks(
    values: list[bytes | None], kind: pa.DataType, skipped: int, chunk: int
) -> None:
    chunks = [pa.array(values[at : at + chunk], kind) for at in range(0, len(values), chunk)]
    table = pa.table({"value": pa.chunked_array(chunks, kind), "key": pa.array(values, kind)})
    for part in (table, table.slice(skipped)):
        assert column(part, "values") == part.column("value").to_pylist()
        assert column(part, "keys") == part.column("key").to_pylist()
    batch = table.combine_chunks().to_batches()[0]
    assert column(batch, "values") == values


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "é", None]),
        pa.array(["a", "é", None], pa.large_string()),
        pa.array(["a", "é", None], pa.string_view()),
        pa.array(["a", "é", None]).dictionary_encode(),
        pa.array(["a", "é", None], pa.string_view()).dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 3, 5], pa.int32()), pa.array(["a", "é", None], pa.string_view())
        ).slice(1, 3),
    ],
    ids=["string", "large", "view", "dictionary", "dictionary of views", "runs"],
)
def test_text_is_its_utf8(array: pa.Array) -> None:
    assert column(pa.table({"value": array}), "values") == [b"a", "é".encode(), None]


def test_other_columns_of_bytes_are_taken_too() -> None:
    fixed = pa.array([b"abc", None, b"def"], pa.binary(3))
    assert column(pa.table({"value": fixed.slice(1)}), "values") == [None, b"def"]
    assert column(pa.table({"value": pa.nulls(2)}), "values") == [None, None]
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3], pa.int16()), pa.array([b"a", b"b"], pa.binary(1)).dictionary_encode()
    )
    assert column(pa.table({"value": runs, "key": runs}), "keys") == [b"a", b"a", b"b"]


@pytest.mark.parametrize("is_map", [False, True], ids=["structs", "map"])
def test_arrow_headers_belong_to_their_rows(is_map: bool) -> None:
    rows = [[("a", b"1"), ("b", None)], None, [], [("c", b"")]]
    if is_map:
        array = pa.array(rows, pa.map_(pa.string(), pa.binary()))
    else:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        structs = [
            None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows
        ]
        array = pa.array(structs, kind)
    for skipped in (0, 1, 3):
        table = pa.table({"value": pa.nulls(4), "headers": array}).slice(skipped)
        (piece,) = pieces_of(table)
        assert piece.headers is not None
        kept = [row or [] for row in rows[skipped:]]
        assert piece.headers.counts.tolist() == [len(row) for row in kept]
        assert items(piece.headers.keys) == [key.encode() for row in kept for key, _ in row]
        assert items(piece.headers.values) == [value for row in kept for _, value in row]


def test_times_and_partitions_are_numbers_or_absent() -> None:
    times = pa.array([1, None], pa.timestamp("us", "UTC"))
    table = pa.table({"value": pa.nulls(2), "timestamp": times, "partition": pa.array([None, 3])})
    assert column(table, "timestamps") == [0, None]
    assert column(table, "partitions") == [None, 3]
    plain = {"value": [None] * 2, "timestamp": [5, None], "partition": np.array([1, 2], np.uint8)}
    assert column(plain, "timestamps") == [5, None]
    assert column(plain, "partitions") == [1, 2]
    moments = np.array(["1970-01-01T00:00:01", "NaT"], "datetime64[ns]")
    for times in (moments, [*moments], [moments[0], None]):
        assert column({"value": [None] * 2, "timestamp": times}, "timestamps") == [1000, None]
    east = datetime(1970, 1, 1, 1, 0, 2, 1999, tzinfo=timezone(timedelta(hours=1)))
    mixed = {"value": [None] * 3, "timestamp": [east, None, np.int64(5)]}
    assert column(mixed, "timestamps") == [2001, None, 5]
    most = 2**63 - 1
    for times in ([most], np.array([most], np.uint64), pa.array([most], pa.uint64())):
        batch = {"value": [b""], "timestamp": times}
        batch = batch if isinstance(times, list | np.ndarray) else pa.table(batch)
        assert column(batch, "timestamps") == [most]


def test_rows_of_an_array_are_its_bytes() -> None:
    wide = np.arange(6, dtype=np.int16).reshape(3, 2)
    assert column({"value": wide}, "values") == [row.tobytes() for row in wide]
    assert column({"value": wide[::2]}, "values") == [wide[0].tobytes(), wide[2].tobytes()]
    assert column({"value": np.array([b"a", b"bc"])}, "values") == [b"a", b"bc"]
    assert column({"value": np.array([b"a", None], object)}, "values") == [b"a", None]


def test_an_array_may_change_once_it_was_given() -> None:
    array = np.zeros((2, 4), np.uint8)
    (piece,) = pieces_of({"value": array})
    array[:] = 1
    assert items(piece.values) == [bytes(4)] * 2


def test_lists_have_headers_as_send_takes_them() -> None:
    (piece,) = pieces_of({"value": [b""] * 3, "headers": [[("a", b"1")], None, {"b": None}]})
    assert piece.headers is not None
    assert piece.headers.counts.tolist() == [1, 0, 1]
    assert items(piece.headers.values) == [b"1", None]


def test_headers_may_be_none_in_all_rows() -> None:
    for headers in (pa.nulls(2), pa.array([[], None])):
        (piece,) = pieces_of(pa.table({"value": [b"", b""], "headers": headers}))
        assert piece.headers is None
    (piece,) = pieces_of({"value": [b"", b""], "headers": [None, None]})
    assert piece.headers is None


def test_large_batches_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_input, "ROWS_MAX", 3)
    values = [b"%d" % i for i in range(8)]
    for batch in ({"value": values}, pa.table({"value": values})):
        assert [len(piece) for piece in pieces_of(batch)] == [3, 3, 2]
        assert column(batch, "values") == values
    monkeypatch.setattr(batch_input, "PIECE_BYTES_MAX", 20)
    assert len(list(pieces_of(pa.table({"value": [bytes(10)] * 6})))) > 2


def test_no_rows_are_no_pieces_or_empty_ones() -> None:
    empties: list[Any] = [pa.table({"value": pa.array([], pa.binary())}), {"value": []}]
    for empty in empties:
        assert sum(len(piece) for piece in pieces_of(empty)) == 0


@pytest.mark.parametrize(
    ("batch", "error", "words"),
    [
        (
            [b"a"],
            TypeError,
            "batch is a list; it should be a pyarrow Table or RecordBatch, or a dict",
        ),
        ({"key": [b"a"]}, ValueError, "needs one named 'value'"),
        ({"value": [b"a"], "ofset": [1]}, ValueError, "a column 'ofset'"),
        ({"value": [b"a"], "key": []}, ValueError, "different lengths.*'value': 1, 'key': 0"),
        ({"value": [b"a", "b"]}, TypeError, r"value column has bytes or None, not str \(row 1\)"),
        ({"value": np.array(["a"])}, TypeError, "value column has dtype <U1"),
        ({"value": [b""], "partition": [-1]}, ValueError, "partition column has -1"),
        ({"value": [b""], "partition": [1.5]}, TypeError, "partition .* row 0 is a whole"),
        ({"value": [b""], "partition": np.ones(1)}, TypeError, "an array of float64 with 1 dim"),
        ({"value": [b""], "partition": np.ones((1, 1), int)}, TypeError, "with 2 dimensions"),
        ({"value": [b""], "partition": [True]}, TypeError, "row 0 is a whole number, not bool"),
        ({"value": [b""], "headers": [0]}, TypeError, "headers is a list .* not int"),
        ({"value": [b""], "headers": [[("a", "b")]]}, TypeError, "not str; encode it"),
        (pa.table({"value": [1.5]}), TypeError, "value column is double"),
        (pa.table({"value": [b""], "timestamp": ["x"]}), TypeError, "timestamp column is string"),
        (pa.table({"value": [b""], "partition": [-2]}), ValueError, "partition column has -2"),
        (pa.table({"value": [b""], "headers": [b"x"]}), TypeError, "headers column is binary"),
        (
            pa.table({"value": [b""], "headers": [[{"key": None, "value": b""}]]}),
            ValueError,
            "header without a key",
        ),
    ],
)
def test_a_wrong_batch_is_refused_with_the_reason(
    batch: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        list(pieces_of(batch))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.zeros(2, [("it", object)]), "has dtype .*, which is not plain bytes"),
        (np.ma.masked_array([1, 2], [True, False]), "is a masked array, whose mask would be lost"),
        ([np.array([b"a", b"b"], object)] * 2, "has bytes or None, not ndarray"),
    ],
    ids=["fields", "masked", "objects in a list"],
)
def test_arrays_without_bytes_of_their_own_are_refused(column: Any, words: str) -> None:
    with pytest.raises(TypeError, match=f"the value column {words}"):
        list(pieces_of({"value": column}))


@pytest.mark.parametrize("name", ["value", "key", "headers", "timestamp", "partition"])
@pytest.mark.parametrize(
    "wrong",
    [None, 5, "text", b"text", {b"a"}, {0: b"a"}, deque([b"a"]), (each for each in [b"a"])],
    ids=["None", "number", "text", "bytes", "set", "dict", "deque", "generator"],
)
def test_a_wrong_column_is_refused_with_its_name(name: str, wrong: Any) -> None:
    words = f"the {name} column is a list or an array, not {type(wrong).__name__}"
    with pytest.raises(TypeError, match=words):
        list(pieces_of({"value": [b"a"], name: wrong}))
    with pytest.raises(TypeError, match=f"the {name} column is an array without dimensions"):
        list(pieces_of({"value": [b"a"], name: np.array(1)}))


@pytest.mark.parametrize(
    "numbers",
    [
        [2**63],
        [None, 2**64],
        [-(2**63)],
        np.array([2**64 - 1], np.uint64),
        np.array([-(2**63)]),
        pa.array([2**64 - 1, None], pa.uint64()),
        pa.array([-(2**63)]),
    ],
    ids=["list", "larger", "least", "unsigned", "least of an array", "Arrow", "least of Arrow"],
)
@pytest.mark.parametrize("name", ["timestamp", "partition"])
def test_a_number_out_of_range_is_refused_with_its_value(name: str, numbers: Any) -> None:
    values, wrong = [b""] * len(numbers), next(int(str(n)) for n in numbers if n is not None)
    batch = {"value": values, name: numbers}
    least = 0 if name == "partition" else -(2**63) + 1
    words = f"the {name} column has {wrong}; it should be from {least} to"
    with pytest.raises(ValueError, match=words):
        list(pieces_of(pa.table(batch) if isinstance(numbers, pa.Array) else batch))


def test_a_wrong_timestamp_is_refused_with_the_reason() -> None:
    naive, good = datetime(2026, 1, 1), datetime(2000, 1, 1, tzinfo=UTC)  # noqa: DTZ001
    times: list[tuple[Any, str]] = [
        ([good, naive], "column's row 1: 2026-01-01 00:00:00 has no time zone"),
        (np.array([2**62], "M8[s]"), "column has .*, which is too far away"),
    ]
    for column, words in times:
        with pytest.raises(ValueError, match=f"the timestamp {words}"):
            list(pieces_of({"value": [b""] * len(column), "timestamp": column}))
    far = pa.table({"value": [b""], "timestamp": pa.array([2**62], pa.timestamp("s"))})
    with pytest.raises(ValueError, match=r"the timestamp column: .* out of bounds"):
        list(pieces_of(far))


def test_times_before_1970_are_taken() -> None:
    """Use fault 6."""
    old = datetime(1969, 1, 1, tzinfo=UTC)
    columns: dict[int, Any] = {
        -31536000000: [old],
        -1000: np.array([-1], "M8[s]"),
        -1: pa.array([-1], pa.timestamp("ms")),
        -(2**63) + 1: [-(2**63) + 1],
        -5: np.array([-5]),
    }
    for milliseconds, column in columns.items():
        batch = {"value": pa.array([b""]) if isinstance(column, pa.Array) else [b""]}
        given = batch | {"timestamp": column}
        [piece] = pieces_of(pa.table(given) if isinstance(column, pa.Array) else given)
        assert piece.timestamps is not None
        assert piece.timestamps.tolist() == [milliseconds]


def test_a_time_is_no_partition() -> None:
    for times in (np.array([1], "M8[s]"), [datetime.now(UTC)]):
        with pytest.raises(TypeError, match="the partition column"):
            list(pieces_of({"value": [b""], "partition": times}))
    table = pa.table({"value": [b""], "partition": pa.array([1], pa.timestamp("s"))})
    with pytest.raises(TypeError, match=r"partition column is timestamp\[s\]; .* be integers"):
        list(pieces_of(table))


def test_a_wrong_row_is_refused_with_its_number_in_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_input, "ROWS_MAX", 2)
    for column, wrong in (("value", "text"), ("partition", 1.5)):
        batch = {"value": [b""] * 4, column: [*[None] * 3, wrong]}
        with pytest.raises(TypeError, match="row 3"):
            list(pieces_of(batch))


@pytest.mark.parametrize(("unit", "per_ms"), [("us", 1000), ("ns", 1_000_000)])
def test_parts_of_a_millisecond_are_cut_off_downwards(unit: str, per_ms: int) -> None:
    """Awkward records: below 1970 Arrow's went up; NumPy's, and Spark's Kafka sink, go down."""
    times = [-per_ms - 1, -per_ms, -1, 0, 1, per_ms - 1, per_ms, -(2**61), 2**61]
    columns = [pa.array(times, pa.timestamp(unit)), np.array(times, f"datetime64[{unit}]")]
    for column in columns:
        table = {"value": pa.nulls(len(times), pa.binary()), "timestamp": column}
        batch = pa.table(table) if isinstance(column, pa.Array) else table | {"value": [b""] * 9}
        [piece] = pieces_of(batch)
        assert piece.timestamps is not None
        assert piece.timestamps.tolist() == [each // per_ms for each in times]
