"""Spark finds `format("smq")` here: it imports modules named pyspark_* for their DefaultSource."""

from spark_jobs.source.data_source import SmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
