"""Spark over sealed segments. Nobody imports these programs; `smq spark` starts them."""

from spark_jobs.read import read_topic
from spark_jobs.session import start_session

__all__ = ["read_topic", "start_session"]
