"""Spark over topics: `format("smq")`, `read_topic`, and jobs that `smq spark` starts."""

from spark_jobs.read import read_topic
from spark_jobs.session import start_session
from spark_jobs.source.data_source import register

__all__ = ["read_topic", "register", "start_session"]
