"""Rows and columns of files, without a broker."""

import pyarrow as pa
import pytest

from smq.app.cli.records.tables import to_send


def test_only_a_producers_columns_are_sent() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"v"], "offset": [5], "partition": [1], "key": ["k"], "topic": ["t"]}
    )
    sent = to_send(rows, None, keeps_partitions=True)
    assert set(sent.schema.names) == {"value", "partition", "key"}
    sent = to_send(rows, "offset", keeps_partitions=False)
    assert sent.to_pydict() == {"value": [b"v"], "key": ["5"]}


def test_values_of_all_kinds_become_json() -> None:
    rows = pa.RecordBatch.from_pydict({"a": [b"\xff"], "b": [1.5], "c": [None], "d": [[1]]})
    sent = to_send(rows, None, keeps_partitions=True)
    assert sent["value"].to_pylist() == [b'{"a": "\\\\xff", "b": 1.5, "c": null, "d": [1]}']


def test_a_key_must_be_a_column() -> None:
    with pytest.raises(ValueError, match="it has no column 'k', only a"):
        to_send(pa.RecordBatch.from_pydict({"a": [1]}), "k", keeps_partitions=True)
