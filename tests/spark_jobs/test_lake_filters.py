"""What Spark finds with a filter in the files that lake tables list is what the records have."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sealer.lake.lake_kit import Lake, lake_in
from tests.sealer.lake.test_filters import Reader, assert_found, in_sql, places, seal_all

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
FILES: dict[str, Callable[[Lake], list[str]]] = {
    "delta": lambda lake: lake.delta().file_uris(),
    "iceberg": lambda lake: [x.file.file_path for x in lake.iceberg().scan().plan_files()],
}


@pytest.mark.parametrize("late", [False, True], ids=["at once", "columns added later"])
@pytest.mark.parametrize("kind", FILES)
def test_every_filter_of_spark_finds_what_was_sent(
    spark: SparkSession, tmp_path: Path, kind: str, late: bool
) -> None:
    """Use fault 3."""

    def reader(lake: Lake) -> Reader:
        rows = spark.read.option("basePath", lake.uri()).option("mergeSchema", "true")
        table = rows.parquet(*FILES[kind](lake))
        return lambda each: places(
            table.where(in_sql(each, "TIMESTAMP ")).select("partition", "_offset").toArrow()
        )

    with lake_in(tmp_path, kind) as lake:
        assert_found(lake, seal_all(lake, late=late), reader)
