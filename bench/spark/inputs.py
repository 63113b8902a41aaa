"""What `bench.spark` reads: topics of synthetic records, and Spark's Kafka source."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from shm.kernels.twin.records import PlainRecord, batch as plain_batch
from smq.filer.local import LocalStore
from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.segments import SealedPartition, Segment
from smq.sealer.room import Room
from smq.sealer.seal import Sealing
from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME, Store as SqlStore
from smq.testing.kafka import KafkaUnavailable
from smq.testing.sealing import FakeShard, draw
from smq.testing.smq_broker import SmqBroker

BATCH_RECORDS = 100_000
SEGMENTS_AT_ONCE = 100
VALUE_BYTES = 100
FIXED_BYTES = 40  # Of a value; the rest are random digits, as real records repeat only in part.
KEYS = 100_000
SEALED_S_MAX = 1800.0
POLL_S = 0.2
MAVEN_S_MAX = 300
KAFKA_SOURCE_VERSION = "4.2.0"  # The newest in Maven Central; Spark 4.3 runs it.
KAFKA_SOURCE = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>smq.bench</groupId><artifactId>spark-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>{KAFKA_SOURCE[0]}</artifactId>
      <version>{KAFKA_SOURCE_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def records(count: int, seed: int = 19) -> Iterator[pa.RecordBatch]:
    """Keys of 8 bytes and values of VALUE_BYTES."""
    chance = np.random.default_rng(seed)
    for first in range(0, count, BATCH_RECORDS):
        rows = min(BATCH_RECORDS, count - first)
        digits = chance.integers(48, 58, (rows, VALUE_BYTES), dtype=np.uint8)
        digits[:, :FIXED_BYTES] = ord("x")
        ends = np.arange(0, (rows + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
        values = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(digits.tobytes())]
        )
        numbers = chance.integers(0, KEYS, rows)
        keys = pa.array([b"%08d" % each for each in numbers.tolist()], pa.binary())
        yield pa.record_batch({"key": keys, "value": values})


def fill(broker: SmqBroker, topic: str, count: int, configs: dict[str, str]) -> None:
    """Create a topic of four partitions with this many records."""
    with broker.connect() as client:
        client.create_topic(topic, 4, configs)
        with client.producer() as producer:
            for batch in records(count):
                producer.send_batch(topic, batch)


def segments_of(broker: SmqBroker, topic: str) -> list[Segment]:
    """Its sealed segments."""
    with open_manifest(broker.data_dir / FILE_NAME) as manifest:
        (found,) = [each for each in manifest.topics() if each.name == topic]
        return [each for number in found.partition_numbers for each in manifest.segments(number)]


def wait_sealed(broker: SmqBroker, topic: str, count: int) -> None:
    """Until all records are in segments."""
    deadline = time.monotonic() + SEALED_S_MAX
    while sum(each.record_count for each in segments_of(broker, topic)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} is not sealed after {SEALED_S_MAX:.0f} s")
        time.sleep(POLL_S)


def make_segments(data_dir: Path, topic: str, count: int) -> None:
    """Make a data directory with a topic of one partition: `count` segments of one record each."""
    data_dir.mkdir(parents=True)
    store = SqlStore.open(data_dir / FILE_NAME)
    store.add_topic(Topic(topic, UUID(int=1), (1,), (0,)), 0)
    filer, place = LocalStore(data_dir / "filer"), SealedPartition(NAMESPACE_DEFAULT, topic, 0, 1)
    for first in range(0, count, SEGMENTS_AT_ONCE):
        offsets = range(first, min(count, first + SEGMENTS_AT_ONCE))
        records = [PlainRecord(each, each, b"key", b"value", ()) for each in offsets]
        log = FakeShard([plain_batch([each], end_offset=each.offset + 1) for each in records])
        log.sealed_end = first
        Sealing(filer, log, store.manifest, lambda: 1, draw, Room()).seal(place, first, log.end, 1)
    store.commit()
    store.close()


def fill_kafka(bootstrap: str, topic: str, count: int) -> None:
    """The same records in Apache Kafka, in a topic that it makes itself."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000, "acks": "1"}
    )
    for batch in records(count):
        keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def kafka_source_jars() -> Sequence[str]:
    """The jars of Spark's Kafka source, from Maven Central. Raises KafkaUnavailable."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = home / "smq-test" / f"spark-kafka-{KAFKA_SOURCE_VERSION}"
    jars, complete = cache / "libs", cache / "complete"
    if not complete.exists():
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "pom.xml").write_text(_POM)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
        wanted = f"-DincludeArtifactIds={','.join(KAFKA_SOURCE)}"
        command = ["mvn", "--quiet", "--batch-mode", goal, wanted, f"-DoutputDirectory={jars}"]
        try:
            subprocess.run(command, cwd=cache, check=True, capture_output=True, timeout=MAVEN_S_MAX)
        except (OSError, subprocess.SubprocessError) as error:
            raise KafkaUnavailable(
                f"Maven could not fetch Spark's Kafka source: {error}"
            ) from error
        complete.touch()
    return [str(each) for each in sorted(jars.glob("*.jar"))]
