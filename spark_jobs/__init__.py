"""Spark over topics: `format("smq")`, `read_topic`, `stream_topic`, and jobs for `smq spark`."""

from spark_jobs.progress import behind
from spark_jobs.read import read_topic
from spark_jobs.session import start_session
from spark_jobs.source.data_source import register
from spark_jobs.stream_topic import TopicStream, stream_topic

__all__ = ["TopicStream", "behind", "read_topic", "register", "start_session", "stream_topic"]
