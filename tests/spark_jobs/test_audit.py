"""What is wrong with a topic is found."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import audit
from spark_jobs.audit import expected, transform
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import RunJob, SealTopic, frame

pytestmark = pytest.mark.spark


def test_duplicates_and_gaps_are_counted(spark: SparkSession) -> None:
    records = frame(spark, [(each, None, b"v") for each in (3, 4, 4, 8)])
    [row] = transform(records).collect()
    assert (row.records, row.duplicates, row.without_record) == (4, 1, 3)
    assert (row.first_offset, row.last_offset) == (3, 8)


def test_a_sound_topic_passes(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path, run_job: RunJob
) -> None:
    seal_topic([batch(0, 4), batch(4, 2, key=b"\xff"), batch(8, 4)])
    assert expected(tmp_path, "orders").counts == {0: 10}
    [line] = run_job(audit, "orders", "--data-dir", tmp_path).splitlines()
    found = json.loads(line)
    assert (found["records"], found["duplicates"], found["without_record"]) == (10, 0, 2)


def test_a_changed_file_fails(
    spark: SparkSession, seal_topic: SealTopic, tmp_path: Path, run_job: RunJob
) -> None:
    [segment] = seal_topic([batch(0, 300)])
    file = tmp_path / "filer" / segment.path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(SystemExit, match=segment.path):
        run_job(audit, "orders", "--data-dir", tmp_path)


def test_a_lost_record_fails(
    spark: SparkSession,
    seal_topic: SealTopic,
    tmp_path: Path,
    run_job: RunJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seal_topic([batch(0, 4)])
    monkeypatch.setattr(audit, "expected", lambda *_: audit.Expected({0: 0}, {0: 5}))
    with pytest.raises(SystemExit) as ended:
        run_job(audit, "orders", "--data-dir", tmp_path)
    assert ended.value.code == 1
