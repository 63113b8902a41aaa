"""Spark's entry point: `format("smq")`."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SmqDataSource(DataSource):
    """`spark.read.format("smq")`. Spark loads it in each session, so it imports little."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "smq"

    def schema(self) -> str:
        """The columns that a read has."""
        from spark_jobs.source.reading import ddl  # noqa: PLC0415  (see the class)

        return ddl(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from spark_jobs.source.reading import SmqReader  # noqa: PLC0415  (see the class)

        return SmqReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        """A stream."""
        from spark_jobs.source.stream import SmqStreamReader  # noqa: PLC0415  (see the class)

        return SmqStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """A batch write."""
        from spark_jobs.source.sink import SmqWriter  # noqa: PLC0415  (see the class)

        return SmqWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802  (Spark's)
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001  (Output modes decide what the rows are.)
    ) -> DataSourceStreamWriter:
        """A stream's write."""
        from spark_jobs.source.sink import SmqStreamWriter  # noqa: PLC0415  (see the class)

        return SmqStreamWriter(self.options, schema)


def register(spark: "SparkSession") -> None:
    """Register `format("smq")` where Spark does not find it (spark-submit --py-files).

    Spark finds it in any session of a Python environment with SMQ.
    """
    spark.dataSource.register(SmqDataSource)
