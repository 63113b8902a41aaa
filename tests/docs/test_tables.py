"""The programs of docs/tables.md run, one after the other, as they are written."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from smq.app.process.clock import wall_ms
from smq.app.process.lake import table_facts
from smq.front.metrics.facts import TableFacts
from smq.store.manifest import open_manifest
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.spark_jobs.conftest import spark

__all__ = ["spark"]

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_programs_of_the_tables_page_work(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with SmqBroker(tmp_path, {"seal.ms": "1"}) as broker:
        schema = '{"fields": [{"name": "price", "type": "double"}]}'
        with broker.connect() as client:
            client.create_topic("bids", 2, {"smq.table": "delta", "smq.schema": schema})
            with client.producer() as producer:
                for number in range(20):
                    producer.send("bids", b'{"price": %d.5}' % number, partition=number % 2)
            for topic, kind in (("orders", "iceberg"), ("clicks", "delta")):
                client.create_topic(topic, 2, {"smq.table": kind})
                with client.producer() as producer:
                    for number in range(20):
                        producer.send(topic, b"%d" % number, partition=number % 2)

        def published() -> bool:
            facts = tables_of(broker.data_dir)
            return (
                len(facts) == 3
                and all(each.files and not each.records_behind and each.synced_ms for each in facts)
                and sealed_is_all(broker.data_dir)
            )

        eventually(published, "all tables are published")
        names: dict[str, Any] = {"data_dir": broker.data_dir, "spark": spark}
        programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert len(programs) == 8
        for program in programs:
            exec(program, names)
    said, _ = capfd.readouterr()
    ends = '{"0": 10, "1": 10}'
    assert said.splitlines() == [
        "5",
        ends,
        "(20,)",
        "20",
        "20",
        ends,
        "20",
        "20",
        "[(200.0,)]",
        "8",
    ]


def tables_of(data_dir: Path) -> list[TableFacts]:
    with open_manifest(data_dir / "store.sqlite") as manifest:
        return [*table_facts(data_dir, manifest, manifest.topics(), wall_ms())]


def sealed_is_all(data_dir: Path) -> bool:
    with open_manifest(data_dir / "store.sqlite") as manifest:
        numbers = [number for topic in manifest.topics() for number in topic.partition_numbers]
        return [manifest.sealed_end(number) for number in numbers] == [10] * 6
