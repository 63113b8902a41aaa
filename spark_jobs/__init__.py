"""Spark over sealed segments: `read_topic` for programs, and jobs that `smq spark` starts."""

from spark_jobs.read import read_topic
from spark_jobs.session import start_session

__all__ = ["read_topic", "start_session"]
