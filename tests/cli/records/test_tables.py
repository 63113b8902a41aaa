"""Rows and columns of files, without a broker."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
import pytest

from smq.cli.records.tables import BATCH_BYTES, ROWS_MAX, parts_to_send, read, to_send


def test_only_a_producers_columns_are_sent() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"v"], "offset": [5], "partition": [1], "key": ["k"], "topic": ["t"]}
    )
    sent = to_send(rows, None, keeps_partitions=True)
    assert set(sent.schema.names) == {"value", "partition", "key"}
    sent = to_send(rows, "offset", keeps_partitions=False)
    assert sent.to_pydict() == {"value": [b"v"], "key": ["5"]}


def test_values_of_all_kinds_become_json() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [b"\xc3\xa4"], "b": [1.5], "c": [None], "d": [[1]]})
    sent = to_send(rows, None, keeps_partitions=True)
    assert sent["value"].to_pylist() == ['{"a": "ä", "b": 1.5, "c": null, "d": [1]}'.encode()]


def test_a_key_must_be_a_column() -> None:
    with pytest.raises(ValueError, match="it has no column 'k', only a"):
        to_send(pa.RecordBatch.from_pydict({"a": [1]}), "k", keeps_partitions=True)


@pytest.mark.parametrize("name", ["k", "value"])
def test_a_column_that_text_cannot_say_is_no_key(name: str) -> None:
    """`smq import --key` of a column of lists ended with ArrowNotImplementedError."""
    rows = pa.RecordBatch.from_pydict({name: [b"v"], "key": [[1]]})
    with pytest.raises(ValueError, match="column 'key' cannot be keys: Unsupported cast"):
        to_send(rows, "key", keeps_partitions=True)


def imported(path: Path, text: bytes | str, encoding: str | None = None) -> list[Any]:
    """The values that a CSV file becomes, decoded."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    sent = [to_send(rows, None, keeps_partitions=True) for rows in read(path, encoding)]
    return [json.loads(value) for each in sent for value in each["value"].to_pylist()]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("02134", "02134"),
        ("12345678901234567890", "12345678901234567890"),
        ("9223372036854775807", 2**63 - 1),
        ("-5", -5),
        ("-0", "-0"),
        ("+5", "+5"),
        ("1_000", "1_000"),
        ("\u0665", "\u0665"),
        (" 5", " 5"),
        ("0.25", 0.25),
        ("0.10", "0.10"),
        ("1e5", "1e5"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("2026-01-02", "2026-01-02"),
        ("true", "true"),
        ("", ""),
    ],
)
def test_a_field_of_csv_is_a_number_only_if_that_is_written_so(
    tmp_path: Path, field: str, value: object
) -> None:
    """Use fault 7: decided per field, whatever its column has elsewhere."""
    assert imported(tmp_path / "a.csv", f'a,b\n1,x\n"{field}",y\n') == [
        {"a": 1, "b": "x"},
        {"a": value, "b": "y"},
    ]


def test_keys_of_csv_are_its_texts(tmp_path: Path) -> None:
    """Use fault 7."""
    path = tmp_path / "a.csv"
    path.write_text("id,b\n12345678901234567890,1\n007,2\n")
    [rows] = read(path)
    sent = to_send(rows, "id", keeps_partitions=True)
    assert sent["key"].to_pylist() == ["12345678901234567890", "007"]


def test_a_file_is_one_of_records_only_if_it_has_no_other_columns() -> None:
    """Use fault 7: a column that happens to be called `value` drops no others."""
    rows = pa.RecordBatch.from_pydict({"id": [1], "value": ["v"]})
    assert to_send(rows, None, keeps_partitions=True)["value"].to_pylist() == [
        b'{"id": 1, "value": "v"}'
    ]


def test_a_repeated_column_is_refused(tmp_path: Path) -> None:
    """Use fault 7."""
    arrays = [pa.array([1]), pa.array([2])]
    with pytest.raises(ValueError, match="it has several columns 'a'"):
        to_send(pa.RecordBatch.from_arrays(arrays, ["a", "a"]), None, keeps_partitions=True)
    with pytest.raises(ValueError, match="it has several columns 'a'"):
        imported(tmp_path / "a.csv", "a,b,a\n1,2,3\n")


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ([1.0, math.nan], "row 11, column 'a' cannot be JSON"),
        ([1.0, -math.inf], "row 11, column 'a' cannot be JSON"),
        ([b"ok", b"\xff"], "row 11, column 'a' cannot be JSON: bytes that are no UTF-8"),
        (pa.array([0, 2**55], pa.timestamp("ms")), "row 11, column 'a' cannot be JSON: .* range"),
        (pa.array([[0], [2**55]], pa.list_(pa.timestamp("ms"))), "row 11, column 'a' cannot be"),
    ],
)
def test_a_value_without_json_form_is_refused_with_row_and_column(
    column: list[Any] | pa.Array, sentence: str
) -> None:
    """Use fault 7."""
    rows = pa.RecordBatch.from_pydict({"b": [1, 2], "a": column})
    with pytest.raises(ValueError, match=sentence):
        to_send(rows, None, keeps_partitions=True, first_row=10)


def test_another_encoding_is_to_be_named(tmp_path: Path) -> None:
    """Use fault 7."""
    path, text = tmp_path / "a.csv", "a\nMünchen\n"
    assert imported(path, text.encode("latin-1"), "latin-1") == [{"a": "München"}]
    assert imported(path, "\ufeff" + text) == [{"a": "München"}]
    with pytest.raises(ValueError, match="it is not utf-8; --encoding names another"):
        imported(path, text.encode("latin-1"))
    with pytest.raises(ValueError, match="as utf-16, which it begins like"):
        imported(path, text.encode("utf-16"))


def test_nanoseconds_are_kept() -> None:
    """Use fault 7."""
    moments = pa.array([1, None], pa.timestamp("ns"))
    nested = pa.array([[{"t": 1}], []], pa.list_(pa.struct([("t", pa.timestamp("ns", "UTC"))])))
    spans = pa.array([1, 2], pa.duration("ns"))
    rows = pa.RecordBatch.from_arrays([moments, nested, spans], ["a", "b", "c"])
    sent = to_send(rows, None, keeps_partitions=True)["value"].to_pylist()
    assert [json.loads(value) for value in sent] == [
        {
            "a": "1970-01-01 00:00:00.000000001",
            "b": [{"t": "1970-01-01 00:00:00.000000001Z"}],
            "c": 1,
        },
        {"a": None, "b": [], "c": 2},
    ]


MOMENT, SPAN = pa.timestamp("ns"), pa.duration("ns")
TEXT = "1970-01-01 00:00:00.000000001"


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([[1]], pa.large_list(MOMENT)), [TEXT]),
        (pa.array([[1]], pa.list_(MOMENT, 1)), [TEXT]),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), MOMENT)), [["a", TEXT]]),
        (pa.array([[(1, "a")]], pa.map_(MOMENT, pa.string())), [[TEXT, "a"]]),
        (pa.array([1], MOMENT).dictionary_encode(), TEXT),
        (pa.array([1], SPAN).dictionary_encode(), 1),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pc.run_end_encode(pa.array([1], MOMENT)), TEXT),
        (
            pa.array([[[{"t": 1}]]], pa.large_list(pa.list_(pa.struct([("t", MOMENT)])))),
            [[{"t": TEXT}]],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_nanoseconds_within_any_type_are_kept(column: pa.Array, wanted: object) -> None:
    """Use fault 7: they were refused, with the advice to install pandas."""
    sent = to_send(pa.RecordBatch.from_arrays([column], ["a"]), None, keeps_partitions=True)
    assert json.loads(sent["value"][0].as_py()) == {"a": wanted}


def test_nanoseconds_that_arrow_cannot_write_are_refused_with_row_and_column() -> None:
    """Use fault 7."""
    rows = pa.RecordBatch.from_arrays([pa.array([[1]], pa.list_view(MOMENT))], ["a"])
    with pytest.raises(ValueError, match=r"row 4, column 'a' cannot be JSON: Unsupported cast"):
        to_send(rows, None, keeps_partitions=True, first_row=4)


def test_hexadecimal_text_is_no_time(tmp_path: Path) -> None:
    """Use fault 7: `0x10` became 16."""
    for name, text in [("timestamp", "0x10"), ("timestamp", "-0X10"), ("partition", "0x1")]:
        path = tmp_path / "a.csv"
        path.write_text(f"value,{name}\nx,1\nx,{text}\n")
        [rows] = read(path)
        with pytest.raises(ValueError, match=f"row 2, column '{name}' is no"):
            to_send(rows, None, keeps_partitions=True)


def test_records_of_csv_have_texts_as_they_are(tmp_path: Path) -> None:
    """Use fault 7."""
    path = tmp_path / "a.csv"
    path.write_text("key,value,timestamp,partition\n007,02134,-5,\nk,1.0,,0\n")
    [rows] = read(path)
    assert to_send(rows, None, keeps_partitions=True).to_pydict() == {
        "value": ["02134", "1.0"],
        "timestamp": [-5, None],
        "partition": [None, 0],
        "key": ["007", "k"],
    }
    path.write_text("value,timestamp\nv,2026-01-02T03:04:05Z\n")
    [rows] = read(path)
    [moment] = to_send(rows, None, keeps_partitions=True)["timestamp"].to_pylist()
    assert moment.isoformat() == "2026-01-02T03:04:05+00:00"
    for text in ("value,timestamp\nv,soon\n", "value,partition\nv,x\n", "value,headers\nv,x\n"):
        path.write_text(text)
        [rows] = read(path)
        with pytest.raises(ValueError, match=r"timestamp|partition|headers"):
            to_send(rows, None, keeps_partitions=True)


def test_a_wrong_csv_line_is_refused_with_its_number(tmp_path: Path) -> None:
    """Use fault 7."""
    for text, sentence in {
        "a,b\n1,2\n3\n": "line 3: it has 1 fields, not 2",
        "": "^it is empty",
        'a\n"x': "line 2: unexpected end of data",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            imported(tmp_path / "a.csv", text)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_some_large_rows_do_not_make_the_others_come_one_by_one(
    tmp_path: Path, suffix: str
) -> None:
    """Door fault 15, its kind: 20 rows of 5 MB made the import of those behind them 70 times
    slower."""
    path = tmp_path / f"mixed{suffix}"
    values = [b"x" * 9_000_000] * 20 + [b"%d" % n for n in range(300_000)]
    table = pa.table({"value": pa.array(values, pa.binary())})
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa_ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    parts = [*parts_to_send(read(path), None, keeps_partitions=False)]
    assert [each for part in parts for each in part["value"].to_pylist()] == values
    assert all(part.nbytes < 2 * BATCH_BYTES for part in parts)
    assert len(parts) < 200


def test_row_groups_whose_dictionaries_do_not_fit_together_are_read(tmp_path: Path) -> None:
    """They were not joined before either."""
    path, kind = tmp_path / "a.parquet", pa.dictionary(pa.int8(), pa.string())
    texts = [[f"{group} {n}" for n in range(100)] for group in range(5)]
    tables = [pa.table({"a": pa.array(each).cast(kind)}) for each in texts]
    with pq.ParquetWriter(path, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    found = [each for batch in read(path) for each in batch["a"].to_pylist()]
    assert found == [each for group in texts for each in group]


def test_a_small_file_of_large_rows_is_read_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """Door fault 15: a file of a kilobyte asked for 13 GB."""
    path = tmp_path / "bomb.parquet"
    text = "x" * 20_000
    table = pa.table({"n": range(20_000), "a": pa.array([text] * 20_000)})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 200_000
    found, largest = list[int](), 0
    for batch in read(path):
        found += batch["n"].to_pylist()
        largest = max(largest, batch.nbytes)
        assert set(batch["a"].to_pylist()) == {text}
    assert found == list(range(20_000))
    sizes = [batch.nbytes for batch in read(path)]
    assert sum(size > BATCH_BYTES for size in sizes) <= 1, "only the first is too large"


@pytest.mark.slow
def test_rows_that_memory_cannot_hold_are_read_again_fewer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"a": pa.array(["x" * 200_000] * 20_000)}), path, compression="zstd")
    code = (
        "from shm.confined import confine; import sys; from pathlib import Path\n"
        "from smq.cli.records.tables import read\n"
        "import pyarrow as pa; pa.array([0]); confine(1 << 30)\n"
        "print(sum(len(batch) for batch in read(Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "20000\n", done.stderr


def test_times_of_csv_are_read_field_by_field_and_refused_with_their_row(tmp_path: Path) -> None:
    """Use fault 7: a time of another form than the others' ended the import, without its row."""
    path = tmp_path / "a.csv"
    path.write_text(
        "value,timestamp\na,-1\nb,1969-12-31T23:59:59.998\nc,\nd,1970-01-01T00:00:01Z\n"
    )
    [rows] = read(path)
    assert to_send(rows, None, keeps_partitions=True)["timestamp"].to_pylist() == [
        -1,
        -2,
        None,
        1000,
    ]
    for field in ("soon", "99999999999999999999", "1970-01-01T00:00:00.0001", " 1", "1.0"):
        path.write_text(f"value,timestamp\na,1970-01-01\nb,\nc,{field}\n")
        [rows] = read(path)
        with pytest.raises(ValueError, match="row 12, column 'timestamp' is no moment"):
            to_send(rows, None, keeps_partitions=True, first_row=10)
    path.write_text("value,partition\na,1\nb,1.5\n")
    [rows] = read(path)
    with pytest.raises(ValueError, match="row 2, column 'partition' is no whole number"):
        to_send(rows, None, keeps_partitions=True)


@pytest.mark.parametrize(("unit", "per_ms"), [("us", 1000), ("ns", 1_000_000)])
def test_times_that_records_cannot_keep_are_refused(unit: str, per_ms: int) -> None:
    """Use fault 7: parts of a millisecond were cut off."""
    for last, is_wrong in ((-per_ms, False), (5, True), (-per_ms - 1, True)):
        times = pa.array([None, 0, 7 * per_ms, last], pa.timestamp(unit, "UTC"))
        rows = pa.RecordBatch.from_pydict({"value": [b""] * 4, "timestamp": times})
        if is_wrong:
            with pytest.raises(ValueError, match="row 4, column 'timestamp' has parts of a milli"):
                to_send(rows, None, keeps_partitions=True)
        else:
            assert to_send(rows, None, keeps_partitions=True)["timestamp"] == times


def write_arrow(path: Path, column: pa.Array, *, compression: str | None = None) -> Path:
    options = pa_ipc.IpcWriteOptions(compression=compression)
    batch = pa.RecordBatch.from_arrays([column], ["value"])
    with pa_ipc.new_file(str(path), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return path


def sent_parts(path: Path) -> list[pa.RecordBatch]:
    return list(parts_to_send(read(path), None, keeps_partitions=True))


def test_a_file_with_fewer_rows_than_it_says_ends(tmp_path: Path) -> None:
    """Door fault 15: it was read again and again, for ever."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(100)}), path)
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<I", data[-8:-4])
    at = data.index(b"\x16\xc8\x01", len(data) - 8 - size)  # The number of rows: 100.
    data[at + 1 : at + 3] = b"\x80\x7d"
    path.write_bytes(data)
    rows = read(path)
    assert next(rows).num_rows == 100
    with pytest.raises(ValueError, match="it says that it has 8000 rows, and has 100"):
        next(rows)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
@pytest.mark.parametrize("second", [2**30, 4096, -4096])
def test_offsets_that_point_outside_their_file_are_refused(
    tmp_path: Path, kind: pa.DataType, second: int
) -> None:
    """Door fault 15: text from this process's memory became records, or the process ended."""
    path = write_arrow(tmp_path / "a.arrow", pa.array(["abc", "def", "ghi"], kind))
    data, offsets = path.read_bytes(), np.array([0, 3, 6, 9], np.int32)
    wrong = offsets.copy()
    wrong[2] = second
    assert data.count(offsets.tobytes()) == 1
    path.write_bytes(data.replace(offsets.tobytes(), wrong.tobytes()))
    with pytest.raises(ValueError, match=r"[Oo]ffset"):
        sent_parts(path)


def test_a_dictionary_lacks_what_is_not_in_it(tmp_path: Path) -> None:
    """Door fault 15: the process ended with a segmentation fault."""
    places = np.array([0, 1, 0, 1, 0], np.int32)
    column = pa.DictionaryArray.from_arrays(pa.array(places), pa.array([b"x", b"y"]))
    path = write_arrow(tmp_path / "a.arrow", column)
    data, wrong = path.read_bytes(), np.array([0, 1, 0, 1, 10**8], np.int32)
    assert data.count(places.tobytes()) == 1
    path.write_bytes(data.replace(places.tobytes(), wrong.tobytes()))
    with pytest.raises(ValueError, match="out of bounds"):
        sent_parts(path)


def _repeated(text: bytes, rows: int) -> dict[str, pa.Array]:
    places = pa.array(np.zeros(rows, np.int8))
    [view] = pa.array([text], pa.binary_view()).buffers()[1:2]
    views = pa.py_buffer(bytes(view)[:16] * rows)
    data = pa.array([text], pa.binary_view()).buffers()[2]
    return {
        "dictionary": pa.DictionaryArray.from_arrays(places, pa.array([text])),
        "run": pa.RunEndEncodedArray.from_arrays(pa.array([rows]), pa.array([text])),
        "views": pa.Array.from_buffers(pa.binary_view(), rows, [None, views, data]),
    }


@pytest.mark.parametrize("way", ["dictionary", "run", "views"])
def test_rows_of_an_arrow_file_are_sent_in_parts(tmp_path: Path, way: str) -> None:
    """Door fault 15: some kilobytes were made gigabytes at once, which ended in a traceback."""
    rows, text = 20_000, b"x" * 20_000
    path = write_arrow(tmp_path / "a.arrow", _repeated(text, rows)[way], compression="zstd")
    assert path.stat().st_size < 10_000
    found = 0
    for part in parts_to_send(read(path), None, keeps_partitions=True):
        assert part.nbytes < BATCH_BYTES
        assert part["value"][0].as_py() == text
        found += len(part)
    assert found == rows


def test_rows_are_numbered_over_all_parts(tmp_path: Path) -> None:
    """Use fault 7."""
    count = 2 * ROWS_MAX
    path = write_arrow(tmp_path / "a.arrow", pa.array(range(count)).cast(pa.string()))
    assert [len(part) for part in sent_parts(path)] == [ROWS_MAX, ROWS_MAX]
    numbers = pa.array([*map(float, range(count)), math.nan])
    batch = pa.RecordBatch.from_arrays([numbers], ["a"])
    with pytest.raises(ValueError, match=f"row {count + 1}, column 'a'"):
        list(parts_to_send(iter([batch]), None, keeps_partitions=True))


def test_a_csv_of_many_empty_fields_is_read_in_parts(tmp_path: Path) -> None:
    """Use fault 7: 65,536 rows of them were held at once, for a wide table 2 GB and more."""
    path, columns = tmp_path / "a.csv", 10_000
    row = "," * (columns - 1) + "\n"
    path.write_text(",".join(f"c{n}" for n in range(columns)) + "\n" + row * 3_000)
    sizes = [len(part) for part in read(path)]
    assert sum(sizes) == 3_000
    assert max(sizes) * columns < 10_000_000
