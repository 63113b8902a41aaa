"""One Spark session for all tests that need one, and a topic that was sealed."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame, SparkSession

from smq.client.client import Client
from smq.filer.local import LocalStore
from smq.model.segments import Segment
from smq.testing.sealing import FakeShard
from spark_jobs.read import SCHEMA
from spark_jobs.session import start_session
from tests.sealer.sealed import manifest_in, seal

SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # Tests are short: compile less, collect simply.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

ROOT = str(Path(__file__).parents[2])
SECONDS_MAX = 60.0
POLL_SECONDS = 0.05

RunJob = Callable[..., str]
SealTopic = Callable[..., list[Segment]]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Spark's Python processes import what these tests do.
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    local_dir = str(tmp_path_factory.mktemp("spark"))
    with start_session("tests", **SMALL, **{"spark.local.dir": local_dir}) as session:
        yield session


@pytest.fixture
def seal_topic(tmp_path: Path) -> Iterator[SealTopic]:
    """Seal batches of the topic "orders": seal_topic(batches, segment_bytes=…) -> segments."""
    with manifest_in(tmp_path) as manifest:
        manifest._database.commit()

        def sealed(batches: list[bytes], segment_bytes: int = 1 << 26) -> list[Segment]:
            store, shard = LocalStore(tmp_path / "filer"), FakeShard(batches)
            seal(store, shard, manifest, sealed_end=0, end=shard.end, segment_bytes=segment_bytes)
            manifest._database.commit()
            return manifest.segments(1)

        yield sealed


@pytest.fixture
def run_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunJob:
    """Run a job as a program: run_job(module, *arguments) -> what it prints."""

    def run(job: ModuleType, *arguments: object) -> str:
        # The program's session is the one there is, and outlives it here.
        monkeypatch.setattr(SparkSession, "stop", lambda _: None)
        monkeypatch.setattr(sys, "argv", [job.__name__, *map(str, arguments)])
        capsys.readouterr()
        job.main()
        return capsys.readouterr().out

    return run


def frame(
    spark: SparkSession, records: Iterable[tuple[int, bytes | None, bytes | None]]
) -> DataFrame:
    """Records of a partition: offset, key, value."""
    rows: list[tuple[object, ...]] = [
        (key, value, "t", 0, offset, None, 0, []) for offset, key, value in records
    ]
    return spark.createDataFrame(rows, SCHEMA)


def send(client: Client, first: int, count: int, topic: str = "orders") -> None:
    """Send numbers to a topic of two partitions; the first record has a header."""
    with client.producer() as producer:
        for each in range(first, first + count):
            headers = [("h", b"1")] if each == first else []
            producer.send(topic, b"%d" % each, key=b"k", partition=each % 2, headers=headers)


def wait_for(condition: Callable[[], bool], seconds_max: float = SECONDS_MAX) -> None:
    """Until something is so."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(POLL_SECONDS)
