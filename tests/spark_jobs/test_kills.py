"""Streams and jobs that are killed at random: each row arrives once.

Of two streams the driver, workers and broker are killed. One writes a Parquet table, which shows
what the source gives; the other a topic, through the sink. Jobs are killed and started again.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from spark_jobs.session import java_home
from tests.spark_jobs.conftest import ROOT, wait_for
from tests.spark_jobs.source.test_publishing import values

pytestmark = pytest.mark.spark

ROWS = 1500  # Sent before each kill; a batch has some 200.
MOMENT_S_MAX = 3.0
START_S_MAX = 240.0
ENDS_MAX = 5  # How often the last run may fail before its streams end: each time it is repeated.
VICTIMS = ("driver", "worker", "broker")

PROGRAM = """
import sys
from spark_jobs import start_session

data_dir, directory, mode = sys.argv[1:]
small = {
    "spark.master": "local[2,4]",  # A task that dies is repeated, as on a cluster.
    "spark.driver.memory": "1g",
    "spark.local.dir": directory + "/local",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
with start_session("kills", **small) as spark:

    def source():
        rows = spark.readStream.format("smq").option("dataDir", data_dir)
        rows = rows.option("subscribe", "orders").option("startingOffsets", "earliest")
        return rows.option("maxOffsetsPerTrigger", 200).load().select("key", "value")

    trigger = {"availableNow": True} if mode == "finish" else {"processingTime": "0 seconds"}
    table = source().writeStream.format("parquet").option("path", directory + "/table")
    table = table.option("checkpointLocation", directory + "/of-table").trigger(**trigger).start()
    copies = source().writeStream.format("smq").option("dataDir", data_dir)
    copies = copies.option("topic", "copies").option("checkpointLocation", directory + "/of-topic")
    copies = copies.trigger(**trigger).start()
    table.awaitTermination()
    copies.awaitTermination()
"""


class Driver:
    """The program, in a process group of its own, with its JVM and workers."""

    def __init__(self, broker: SmqBroker, directory: Path, mode: str) -> None:
        command = [sys.executable, "-c", PROGRAM, str(broker.data_dir), str(directory), mode]
        environment = {**os.environ, "PYTHONPATH": ROOT, "JAVA_HOME": str(java_home())}
        with (directory / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)

    def kill_worker(self, chance: random.Random) -> None:
        """One of the processes in which Spark runs Python, if there is one now."""
        with suppress(psutil.NoSuchProcess):  # It has just ended, or the driver has.
            family = psutil.Process(self.process.pid).children(recursive=True)
            workers = [each for each in family if "pyspark.daemon" in " ".join(_command(each))]
            if workers:
                chance.choice(workers).kill()

    def ends_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


Drive = Callable[[str], Driver]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _batches(directory: Path) -> int:
    return sum(1 for each in directory.glob("of-*/commits/[0-9]*"))


def _send(broker: SmqBroker, first: int) -> None:
    with broker.connect() as client, client.producer() as producer:
        producer.send_batch("orders", {"value": [b"%d" % (first + n) for n in range(ROWS)]})


def _strike(
    victim: str, driver: Driver, broker: SmqBroker, directory: Path, chance: random.Random
) -> None:
    """Kill something at a random moment."""
    done = _batches(directory)
    if driver.ends_within(chance.uniform(0, MOMENT_S_MAX)):
        return  # What was killed before has ended it.
    if victim == "broker":
        broker.kill(chance.choice(["shard-1", "coordinator", "sealer"]))
    elif victim == "worker":
        _wait_for_batches(driver, directory, done + 1)
        driver.kill_worker(chance)
    else:
        if chance.random() < 0.7:  # Else perhaps while it starts.
            _wait_for_batches(driver, directory, done + chance.randrange(1, 8))
        driver.kill()


@pytest.fixture
def drive(smq_broker: SmqBroker, tmp_path: Path) -> Iterator[Drive]:
    """Start a driver; none outlives the test."""
    started: list[Driver] = []

    def start(mode: str) -> Driver:
        started.append(Driver(smq_broker, tmp_path, mode))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "kills", [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)]
)
def test_every_row_arrives_once_after_any_kills(
    smq_broker: SmqBroker, tmp_path: Path, drive: Drive, kills: int
) -> None:
    chance = random.Random(kills)
    with smq_broker.connect() as client:
        client.create_topic("orders", 2, {"smq.seal.ms": "2000"})
        client.create_topic("copies", 2)
    driver = drive("follow")
    for number in range(kills):
        _send(smq_broker, number * ROWS)
        if driver.process.poll() is not None:
            driver = drive("follow")
        _strike(VICTIMS[number % len(VICTIMS)], driver, smq_broker, tmp_path, chance)
    driver.kill()
    for _ in range(ENDS_MAX):
        driver = drive("finish")
        if driver.process.wait(3 * START_S_MAX) == 0:
            break
    assert driver.process.returncode == 0, (tmp_path / "driver.log").read_text()[-4000:]
    wanted = list(range(kills * ROWS))
    assert values(smq_broker, "copies") == wanted
    assert _table(tmp_path) == wanted


def _wait_for_batches(driver: Driver, directory: Path, count: int) -> None:
    wait_for(lambda: _batches(directory) >= count or driver.process.poll() is not None, START_S_MAX)


def _table(directory: Path) -> list[int]:
    """The values of a table that a stream wrote: of the files in its log."""
    log = directory / "table" / "_spark_metadata"
    names: set[str] = set()
    for path in log.glob("[0-9]*"):
        lines = path.read_text().splitlines()[1:]
        names |= {line.split('"path":"')[1].split('"')[0].rpartition("/")[2] for line in lines}
    tables = [pq.read_table(directory / "table" / name, columns=["value"]) for name in names]
    return sorted(int(each) for table in tables for each in table["value"].to_pylist())


JOB_ROWS, JOB_PARTITIONS, JOB_KEYS = 4000, 8, 100
JOB_KILLS, JOB_MOMENT_S_MAX = 3, 4.0  # A moment begins with a job's first new file.
JOBS = {
    "compact_keys": [],
    "dedup": [],
    "decode": ["--schema", "n INT", "--dead-letters", "dead", "--max-records", "300"],
}


def _job_records() -> list[tuple[bytes, bytes, int]]:
    """Key, value, partition: each value twice, and each tenth is no JSON."""
    found: list[tuple[bytes, bytes, int]] = []
    for number in (n // 2 for n in range(JOB_ROWS)):
        key, value = number % JOB_KEYS, b'{"n": %d}' % number if number % 10 else b"bad %d" % number
        found.append((b"%d" % key, value, key % JOB_PARTITIONS))
    return found


def _files(directory: Path) -> set[str]:
    return {str(Path(folder, name)) for folder, _, names in os.walk(directory) for name in names}


def _has_begun(process: subprocess.Popen[bytes], table: Path, before: set[str]) -> bool:
    return process.poll() is not None or not _files(table) <= before


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_is_killed_goes_on_and_gives_each_row_once(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, job: str
) -> None:
    chance, given = random.Random(job), _job_records()
    with smq_broker.connect() as client:
        client.create_topic("orders", JOB_PARTITIONS)
        client.create_topic("dead", 2)
        with client.producer() as producer:
            for key, value, partition in given:
                producer.send("orders", value, key=key, partition=partition)
    table = tmp_path / "table"
    command = [sys.executable, "-m", f"spark_jobs.{job}", "orders", "--output", str(table)]
    command += ["--data-dir", str(smq_broker.data_dir), *JOBS[job]]
    environment = {**os.environ, "PYTHONPATH": ROOT, "JAVA_HOME": str(java_home())}
    for number in range(JOB_KILLS + 1):
        before = _files(table)
        with (tmp_path / "job.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            is_last = number == JOB_KILLS
            if not is_last:
                wait_for(partial(_has_begun, process, table, before), START_S_MAX)
            process.wait(None if is_last else chance.uniform(0, JOB_MOMENT_S_MAX))
        except subprocess.TimeoutExpired:
            continue
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
        assert process.returncode == 0, (tmp_path / "job.log").read_text()[-4000:]
    rows = spark.read.parquet(str(table)).collect()
    if job == "decode":
        assert sorted(row.n for row in rows) == sorted(
            n // 2 for n in range(JOB_ROWS) if n // 2 % 10
        )
        with smq_broker.connect() as client, client.consumer("dead", start="earliest") as consumer:
            letters = [
                bytes(each.value or b"") for each in consumer.read_until(consumer.find("latest"))
            ]
        assert sorted(letters) == sorted(value for _, value, _ in given if value[:1] == b"b")
        return
    found = sorted((bytes(row.key), bytes(row.value)) for row in rows)
    pairs = [(key, value) for key, value, _ in given]
    assert found == sorted(dict(pairs).items() if job == "compact_keys" else set(pairs))
