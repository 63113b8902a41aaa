"""Filters Spark's routine messages at startup from a program's stderr; passes the rest.

The Java process inherits stderr, and writes to it before any of its settings apply. So it gets a
pipe instead, and a thread forwards the pipe's lines.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2
ROUTINE = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"WARN Utils: Your hostname",
    b"WARN Utils: Set SPARK_LOCAL_IP",
    b"WARN NativeCodeLoader: Unable to load native-hadoop library",
    b"WARN SparkConf: Note that spark.local.dir will be overridden",
)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Processes started in this block, and their children, write stderr without ROUTINE lines."""
    sys.stderr.flush()
    ours = os.dup(STDERR)
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading, ours), daemon=True).start()
    os.dup2(writing, STDERR)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, STDERR)


def _pass_on(reading: int, writing: int) -> None:
    """Forward lines until no process holds the pipe."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(writing, "wb", buffering=0) as stderr:
        for line in lines:
            if not any(words in line for words in ROUTINE):
                stderr.write(line)
