"""One Spark session for all tests that need one, and a topic that was sealed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from smq.filer.local import LocalStore
from smq.model.segments import Segment
from smq.testing.sealing import FakeShard
from spark_jobs.session import start_session
from tests.sealer.sealed import manifest_in, seal

SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # Tests are short: compile less, collect simply.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

SealTopic = Callable[..., list[Segment]]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
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
