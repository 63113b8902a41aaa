"""A table is made anew by partition, whatever is killed, and replaces the old one as a whole."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from pyspark.sql import DataFrame, SparkSession

from smq.tables.plan import Unreadable
from smq.testing.sealing import Fuse, Killed
from spark_jobs.read import SCHEMA
from spark_jobs.rebuild import PROGRESS, Made, Rows, Table, rebuild

Found = list[tuple[int, int]]
FIRST = Made("dedup", "t", "id", {"by": ["key"]}, {"0": [0, 3], "1": [0, 2]})
LATER = replace(FIRST, ranges={"0": [0, 4], "1": [0, 5]})


class FusedTable(Table):
    """A table whose job may be killed before or after it writes down how far it is."""

    def __init__(self, directory: Path, now: Made, fuse: Fuse) -> None:
        self.fuse = fuse
        super().__init__(directory, now)

    def save(self) -> None:
        self.fuse.step(super().save)


def rows_of(made: Made) -> Found:
    return [(int(p), n) for p, (start, end) in made.ranges.items() for n in range(start, end)]


def run(spark: SparkSession, table: Table) -> None:
    def read(ranges: Mapping[int, list[int]]) -> DataFrame:
        places = [(p, n) for p, (start, end) in ranges.items() for n in range(start, end)]
        rows: list[tuple[object, ...]] = [(b"k", b"v", "t", p, n, None, 0, []) for p, n in places]
        return spark.createDataFrame(rows, SCHEMA).coalesce(1)

    def prepare(records: DataFrame, scratch: Path) -> Rows:
        if not scratch.exists():
            records.select("partition", "offset").write.parquet(str(scratch))
        kept = spark.read.parquet(str(scratch))
        return lambda rows: rows.join(kept, ["partition", "offset"], "left_semi")

    rebuild(spark, table, read, prepare)


def found(spark: SparkSession, directory: Path) -> Found:
    rows = spark.read.parquet(str(directory)).collect()
    return sorted((row.partition, row.offset) for row in rows)


@pytest.mark.spark
def test_a_kill_at_any_step_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    fuse = Fuse()
    run(spark, FusedTable(tmp_path / "table", FIRST, fuse))
    assert found(spark, tmp_path / "table") == rows_of(FIRST)
    assert fuse.taken == 4, "prepared, each partition, complete"
    for step in range(1, fuse.taken + 1):
        for after in (False, True):
            directory = tmp_path / f"{step}-{after}"
            with pytest.raises(Killed):
                run(spark, FusedTable(directory, FIRST, Fuse(step, after=after)))
            is_complete = step == fuse.taken and after
            run(spark, Table(directory, LATER))
            wanted = LATER if is_complete else FIRST
            assert found(spark, directory) == rows_of(wanted), "of the offsets of the first run"
            run(spark, Table(directory, LATER))
            assert found(spark, directory) == rows_of(LATER)


@pytest.mark.spark
def test_the_old_table_stays_until_the_new_one_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    run(spark, Table(tmp_path, FIRST))
    with pytest.raises(Killed):
        run(spark, FusedTable(tmp_path, LATER, Fuse(3)))
    assert found(spark, tmp_path) == rows_of(FIRST)
    with pytest.raises(Killed):  # All is made, and one partition of two has moved.
        run(spark, FusedTable(tmp_path, LATER, Fuse(2, after=True)))
    rmtree(tmp_path / "partition=1")
    (tmp_path / "_next" / "partition=1").rename(tmp_path / "partition=1")
    run(spark, Table(tmp_path, LATER))
    assert found(spark, tmp_path) == rows_of(LATER)
    fewer = replace(LATER, ranges={"0": [1, 4]})
    run(spark, Table(tmp_path, fewer))
    assert found(spark, tmp_path) == rows_of(fewer)


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    Table(tmp_path, FIRST).save()
    return tmp_path


def test_an_unfinished_rebuild_is_completed_only_with_the_same_plan(unfinished: Path) -> None:
    assert Table(unfinished, LATER).progress.made == FIRST
    retained = replace(LATER, ranges={"0": [1, 4], "1": [0, 5]})
    for other in (retained, replace(FIRST, topic_id="new"), replace(FIRST, options={})):
        assert Table(unfinished, other).progress.made == other


def test_a_directory_of_something_else_is_refused(unfinished: Path) -> None:
    with pytest.raises(Unreadable, match="is the table of dedup t; name another directory"):
        Table(unfinished, replace(FIRST, job="compact_keys"))
    wrong = {'{"format": 9}': "has format 9", '{"format": 1}': "is not the progress of a job"}
    for text, reason in wrong.items():
        (unfinished / PROGRESS).write_text(text)
        with pytest.raises(Unreadable, match=reason):
            Table(unfinished, FIRST)
    (unfinished / PROGRESS).unlink()
    (unfinished / "a.parquet").touch()
    with pytest.raises(Unreadable, match="is not a table of this job"):
        Table(unfinished, FIRST)
