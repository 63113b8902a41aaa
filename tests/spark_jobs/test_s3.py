"""A topic whose segments are in a bucket, as a DataFrame."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.filer.location import Location
from smq.store.manifest import WritableManifest
from smq.testing.s3_server import s3_server, settings_for
from spark_jobs.read import read_topic
from tests.sealer.sealed import manifest_in
from tests.tables.test_staging import sealed


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        manifest._database.commit()
        yield manifest


@pytest.mark.spark
def test_spark_reads_a_topic_on_s3_as_one_in_a_directory(
    spark: SparkSession, manifest: WritableManifest, tmp_path: Path
) -> None:
    with s3_server(tmp_path) as server:
        told = settings_for(server, tmp_path, "lake")
        filer = Location(
            told["filer.root"],
            told["filer.s3.endpoint"],
            told["filer.s3.region"],
            told["filer.s3.credentials"],
        )
        segments = sealed(filer.open(), manifest)
        assert {segment.kind for segment in segments} == {"parquet", "raw"}
        rows = read_topic(spark, "orders", data_dir=tmp_path, filer_root=filer)
        assert sorted(row.offset for row in rows.collect()) == list(range(7))
        kept = tmp_path / "staging"
        some = read_topic(
            spark,
            "orders",
            data_dir=tmp_path,
            filer_root=filer,
            staging=kept,
            starting={0: 2},
            ending={0: 4},
        )
        assert sorted(row.offset for row in some.collect()) == [2, 3]
        assert len([*kept.rglob("*.parquet")]) == 1
    assert some.count() == 2  # S3 is needed no more.
