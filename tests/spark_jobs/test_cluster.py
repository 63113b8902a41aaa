"""A Spark cluster of two workers, and segments in a bucket that only they have keys for."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from smq.store.manifest import open_manifest
from smq.store.store import FILE_NAME
from smq.testing.processes import Child, free_port
from smq.testing.s3_server import s3_server, settings_for
from smq.testing.smq_broker import SmqBroker
from spark_jobs.session import java_home
from tests.spark_jobs.conftest import ROOT, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.long]
RECORDS = 20_000
PROGRAM = """
import json, sys
from pyspark.sql import functions as f
from spark_jobs import read_topic, start_session
from smq.filer.location import Location

master, data_dir, root, endpoint, checkpoint = sys.argv[1:]
place = {"dataDir": data_dir, "filerRoot": root, "filerEndpoint": endpoint}
said = {}
with start_session("cluster", **{"spark.master": master, "spark.cores.max": "2"}) as spark:
    bounds = [f.count("*"), f.count_distinct("value"), f.max("offset")]
    sealed = read_topic(spark, "orders", data_dir=data_dir, filer_root=Location(root, endpoint))
    said["read_topic"] = list(sealed.agg(*bounds).first())
    said["executors"] = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    live = spark.read.format("smq").options(**place).option("subscribe", "orders").load()
    said["format"] = list(live.agg(*bounds).first())
    stream = spark.readStream.format("smq").options(**place).option("subscribe", "orders")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 7000)
    writer = stream.load().select("key", "value").writeStream.format("smq").options(**place)
    writer = writer.option("topic", "copies").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    copies = spark.read.format("smq").options(**place).option("subscribe", "copies").load()
    said["copies"] = list(copies.agg(*bounds[:2]).first())
print(json.dumps(said))
"""


@pytest.fixture
def environment() -> dict[str, str]:
    """Of every process of Spark's; without keys."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return kept | {
        "PYTHONPATH": ROOT,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def cluster(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """A master, and two workers with the bucket's keys."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1", "--webui-port", "0"]
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    package = "org.apache.spark.deploy"
    with ExitStack() as stack:

        def start(name: str, command: list[str], more: dict[str, str]) -> Child:
            words = [spark_class, f"{package}.{command[0]}", *place, *command[1:]]
            variables = [f"{key}={value}" for key, value in {**environment, **more}.items()]
            child = Child.start(["env", "-i", *variables, *words], tmp_path / f"{name}.log")
            stack.callback(child.terminate)
            return child

        master = start("master", ["master.Master", "--port", str(port)], {})
        log = tmp_path / "master.log"
        master.wait_ready(lambda: "elected leader" in log.read_text(), 60)
        for name in ("first", "second"):
            options = ["-c", "1", "-m", "1g", "--work-dir", str(tmp_path / name)]
            start(name, ["worker.Worker", *options, address], keys)
        wait_for(lambda: log.read_text().count("Registering worker") == 2)
        yield address


def test_executors_read_the_bucket_and_the_broker(
    cluster: str, environment: dict[str, str], tmp_path: Path
) -> None:
    with s3_server(tmp_path) as server, ExitStack() as stack:
        told = settings_for(server, tmp_path, "lake")
        broker = stack.enter_context(SmqBroker(tmp_path / "broker", told))
        with broker.connect() as client:
            client.create_topic("orders", 4, {"smq.seal.ms": "1000"})
            client.create_topic("copies", 2)
            with client.producer() as producer:
                producer.send_batch("orders", {"value": [b"%d" % n for n in range(RECORDS)]})

            def sealed() -> int:
                with open_manifest(broker.data_dir / FILE_NAME) as manifest:
                    [topic] = [each for each in manifest.topics() if each.name == "orders"]
                    return sum(map(manifest.sealed_end, topic.partition_numbers))

            wait_for(lambda: sealed() == RECORDS)
            with client.producer() as producer:  # Perhaps not sealed when it is read.
                producer.send_batch("orders", {"value": [b"%d" % (RECORDS + n) for n in range(9)]})
            arguments = [cluster, broker.data_dir, told["filer.root"], server.endpoint]
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, *map(str, arguments), str(tmp_path / "checkpoint")],
                env=environment, capture_output=True, text=True, timeout=240, check=False,
            )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["executors"] == 2
    assert said["read_topic"][0] == said["read_topic"][1] >= RECORDS
    assert said["format"][:2] == said["copies"] == [RECORDS + 9] * 2
