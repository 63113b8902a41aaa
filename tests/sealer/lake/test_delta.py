"""Tests of Delta tables only. tests/sealer/lake/test_publish.py has the rest."""

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Log, write_deltalake

from smq.sealer.lake.delta import statistics_of
from smq.sealer.lake.errors import LakeError
from tests.sealer.lake.lake_kit import Lake, assert_follows, lake_in


def newest_commit(lake: Lake) -> list[dict[str, object]]:
    text = max(Path(lake.uri()).glob("_delta_log/*.json")).read_text()
    return [json.loads(each) for each in text.splitlines()]


def test_a_merge_changes_no_data_for_streaming_readers(tmp_path: Path) -> None:
    with lake_in(tmp_path, "delta") as lake:
        lake.seal(0, 4)
        lake.publish()
        lake.merge(0)
        lake.publish()
        commit = newest_commit(lake)
        changes = [each[kind] for each in commit for kind in ("add", "remove") if kind in each]
        assert len(changes) == 5
        assert not any(change["dataChange"] for change in changes)  # type: ignore[index]


@pytest.mark.parametrize("name", ["a%20b", "a\\b"])
def test_a_path_that_deltalake_takes_for_another_one_is_refused(tmp_path: Path, name: str) -> None:
    """The error was of deltalake's kernel: it found no log where it looked for one."""
    (tmp_path / name).mkdir()
    with lake_in(tmp_path / name, "delta") as lake:
        lake.seal(0)
        with pytest.raises(LakeError, match="choose another --data-dir"):
            lake.publish()
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    "name",
    ["a b", "a#b", "a?b", "a%b", "a+b", "a'b", 'a"b', "d\u00e9", "a.", "a&b=c", "a{b}", "a:b"],
)
def test_a_table_in_any_other_directory_is_read(tmp_path: Path, name: str) -> None:
    """By deltalake, and through its dataset. Its `file_uris` are quoted, and Polars misreads them,
    as in tables of its own: docs/tables.md."""
    (tmp_path / name).mkdir()
    with lake_in(tmp_path / name, "delta") as lake:
        lake.seal(0, 4)
        lake.publish()
        table = Log(lake.uri())
        assert table.count() == table.to_pyarrow_dataset().count_rows() > 0
        paths = [Path(unquote(each)) for each in table.file_uris()]
        assert sum(pq.read_metadata(each).num_rows for each in paths) == table.count()
        write_deltalake(tmp_path / name / "own", pa.table({"a": [1]}))
        (uri,) = Log(tmp_path / name / "own").file_uris()
        assert (unquote(uri) == uri) == (table.file_uris() == [*map(str, paths)])


def test_a_checkpoint_is_read_like_the_log(tmp_path: Path) -> None:
    with lake_in(tmp_path, "delta") as lake:
        for _ in range(52):
            lake.seal(0)
            lake.publish()
        assert list(Path(lake.uri()).glob("_delta_log/*.checkpoint.parquet"))
        assert_follows(lake)


def statistics(**columns: object) -> dict[str, object]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, row_group_size=2)
    return statistics_of(pq.read_metadata(pa.BufferReader(sink.getvalue())))


def times(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("us", "UTC"))


def test_statistics_are_those_of_all_row_groups() -> None:
    when = 1_767_323_045_678_900
    assert statistics(
        _offset=[3, 5, 9, 12],
        _ts_ms=[7, 2, 1, 8],
        _ts=times(when + 1, None, when, None),
        text=["b", "a", "d", "c"],
    ) == {
        "numRecords": 4,
        "minValues": {"_offset": 3, "_ts_ms": 1, "_ts": "2026-01-02T03:04:05.678900Z"},
        "maxValues": {"_offset": 12, "_ts_ms": 8, "_ts": "2026-01-02T03:04:05.678901Z"},
        "nullCount": {"_offset": 0, "_ts_ms": 0, "_ts": 2},
    }


def test_statistics_are_of_times_that_iso_8601_can_write() -> None:
    """Use fault 5: files of earlier versions have others."""
    found = statistics(_offset=[3, 5], _ts_ms=[0, 1], _ts=times(-(2**62), 2**62))
    assert (found["minValues"], found["maxValues"]) == (
        {"_offset": 3, "_ts_ms": 0, "_ts": "0001-01-01T00:00:00.000000Z"},
        {"_offset": 5, "_ts_ms": 1, "_ts": "9999-12-31T23:59:59.999999Z"},
    )
    nulls = statistics(_offset=[3, 5], _ts_ms=[0, 1], _ts=times(None, None))
    assert nulls["nullCount"] == {"_offset": 0, "_ts_ms": 0, "_ts": 2}
    assert nulls["minValues"] == {"_offset": 3, "_ts_ms": 0}


def test_statistics_of_some_columns_are_none() -> None:
    """Use fault 3: deltalake takes a column that others are told without for an empty one."""
    assert statistics(_offset=[3, 5], _ts_ms=[0, 1]) == {"numRecords": 2}
