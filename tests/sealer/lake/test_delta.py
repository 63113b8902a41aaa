"""Tests of Delta tables only. tests/sealer/lake/test_publish.py has the rest."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from smq.sealer.lake.delta import statistics_of
from tests.sealer.lake.lake_kit import Lake, assert_follows, lake_in


def newest_commit(lake: Lake) -> list[dict[str, object]]:
    text = max(Path(lake.uri()).glob("_delta_log/*.json")).read_text()
    return [json.loads(each) for each in text.splitlines()]


def test_who_streams_changes_sees_no_merge(tmp_path: Path) -> None:
    with lake_in(tmp_path, "delta") as lake:
        lake.seal(0, 4)
        lake.publish()
        lake.merge(0)
        lake.publish()
        commit = newest_commit(lake)
        changes = [each[kind] for each in commit for kind in ("add", "remove") if kind in each]
        assert len(changes) == 5
        assert not any(change["dataChange"] for change in changes)  # type: ignore[index]


def test_a_checkpoint_is_read_like_the_log(tmp_path: Path) -> None:
    with lake_in(tmp_path, "delta") as lake:
        for _ in range(52):
            lake.seal(0)
            lake.publish()
        assert list(Path(lake.uri()).glob("_delta_log/*.checkpoint.parquet"))
        assert_follows(lake)


def test_statistics_are_those_of_all_row_groups() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)
    rows = pa.table(
        {
            "n": pa.array([3, None, 9, 1]),
            "at": pa.array([when] * 4, pa.timestamp("us", "UTC")),
            "day": pa.array([date(2026, 1, 2)] * 4),
            "text": ["b", "a", "d", "c"],
            "none": pa.array([None] * 4, pa.int64()),
            "list": [[1], [2], [3], [4]],
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=2)
    found = statistics_of(pq.read_metadata(pa.BufferReader(sink.getvalue())))
    time = "2026-01-02T03:04:05.678900Z"
    assert found == {
        "numRecords": 4,
        "minValues": {"n": 1, "at": time, "day": "2026-01-02"},
        "maxValues": {"n": 9, "at": time, "day": "2026-01-02"},
        "nullCount": {"n": 1, "at": 0, "day": 0, "text": 0, "none": 4},
    }
