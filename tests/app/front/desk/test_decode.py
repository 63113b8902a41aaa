"""Values as rows of text; hostile ones end a process that holds nothing."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from smq.app.front.desk import decode
from smq.app.front.desk.decode import (
    CELL_MAX,
    COLUMNS_MAX,
    ROWS_MAX,
    SENTENCE_MAX,
    answer,
    decoded,
)
from smq.client.payload_formats import write_array, write_table


def test_a_table_is_rows_under_names_and_types() -> None:
    value = bytes(write_table(pa.table({"a": [1, None], "b": [b"\xff", b""]})))
    found = answer("Arrow", value)
    assert found["columns"] == ["a: int64", "b: binary"]
    assert found["rows"] == [["1", "ff"], ["None", ""]]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (0, 5), (0,)])
def test_an_array_of_any_shape_is_rows(shape: tuple[int, ...]) -> None:
    found = answer("NumPy", bytes(write_array(np.ones(shape, np.int16))))
    assert str(shape) in found["note"]
    assert len(found["rows"]) == (shape[0] if shape else 1)


def test_rows_columns_and_cells_of_a_decoded_value_are_bounded() -> None:
    wide = {f"c{n}": ["x" * 10_000] * 500 for n in range(100)}
    found = answer("Arrow", bytes(write_table(pa.table(wide))))
    assert (len(found["rows"]), len(found["columns"])) == (ROWS_MAX, COLUMNS_MAX)
    assert len(found["rows"][0][0]) == CELL_MAX + 1


def test_an_avro_file_is_rows() -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    file = BytesIO()
    fastavro.writer(file, schema, [{"a": 1}, {"a": 2}])
    found = answer("Avro", file.getvalue())
    assert (found["columns"], found["rows"]) == (["a"], [["1"], ["2"]])
    assert "error" in answer("Avro", file.getvalue()[:-3])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "x" * 400_000},
        {"type": "record", "name": "r", "fields": [{"name": "a" * 400_000, "type": "null"}]},
    ],
)
def test_names_in_an_avro_file_are_cut(schema: dict[str, Any]) -> None:
    """An error quoted one of 400 kB, on a page where each letter may become six."""
    pytest.importorskip("fastavro")
    meta, marker = json.dumps(schema).encode(), bytes(16)
    header = b"".join(_avro_bytes(each) for each in (b"avro.schema", meta, b"avro.codec", b"null"))
    block = b"\x02\x00" + marker  # A record of no bytes.
    value = b"Obj\x01" + b"\x04" + header + b"\x00" + marker + block
    found = answer("Avro", value)
    assert found.get("error", "").endswith("…") or found["columns"] == ["a" * CELL_MAX + "…"]
    assert len(json.dumps(found)) < 5 * SENTENCE_MAX


def _avro_bytes(data: bytes) -> bytes:
    """A length as a zigzag varint, then the bytes."""
    count, length = 2 * len(data), b""
    while count >= 0x80:
        length += bytes([count & 0x7F | 0x80])
        count >>= 7
    return length + bytes([count]) + data


@pytest.mark.parametrize("kind", ["Arrow", "NumPy"])
@pytest.mark.parametrize(
    "value", [b"", b"garbage", b"\x93NUMPY\x01\x00", b"\xff\xff\xff\xff\xff\xff\xff\x7f"]
)
def test_garbage_is_a_sentence(kind: str, value: bytes) -> None:
    assert f"says that it is {kind}" in answer(kind, value)["error"]


def test_a_small_value_that_grows_is_a_sentence() -> None:
    """Door fault 6: 25 kB of Arrow took 0.8 GB."""
    sink = BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    table = pa.table({"a": pa.array(np.zeros(100_000_000, np.int64))})
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    assert len(sink.getvalue()) < 200_000
    assert "error" in decoded("Arrow", sink.getvalue())


def test_one_value_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Door fault 6."""
    monkeypatch.setattr(decode, "SECONDS", 0.05)
    with decode._one:
        found = decoded("NumPy", bytes(write_array(np.arange(2))))
    assert found == {"error": "other values are being decoded; try again"}


def test_a_process_of_its_own_decodes() -> None:
    found = decoded("NumPy", bytes(write_array(np.arange(2))))
    assert found["rows"] == [["0"], ["1"]]


@pytest.mark.parametrize(
    ("program", "sentence"),
    [("import os\nos.abort()\n", "crashed the process"), ("while True: pass\n", "within 0.3 s")],
)
def test_a_decoder_that_crashes_or_hangs_is_a_sentence(
    program: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_decoder.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}")
    monkeypatch.setattr(decode, "SECONDS", 0.3 if "while" in program else 30.0)
    assert sentence in decoded("Arrow", b"", "bad_decoder")["error"]
