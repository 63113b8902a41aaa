"""The programs of docs/spark.md run, one after the other, as they are written."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from smq.testing.smq_broker import SmqBroker
from tests.spark_jobs.conftest import send, spark
from tests.spark_jobs.source.test_publishing import values

__all__ = ["spark"]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.spark
def test_the_programs_of_the_spark_page_work(
    spark: SparkSession, smq_broker: SmqBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with smq_broker.connect() as client:
        for topic in ("orders", "numbers", "copies"):
            client.create_topic(topic, 2)
        schema = '{"fields": [{"name": "price", "type": "double"}]}'
        client.create_topic("bids", 1, {"smq.schema": schema})
        send(client, 0, 20)
        with client.producer() as producer:
            producer.send_batch("bids", {"value": [b'{"price": %d.5}' % n for n in range(20)]})
    names: dict[str, Any] = {
        "data_dir": smq_broker.data_dir,
        "bootstrap": smq_broker.bootstrap,
        "properties": str(tmp_path / "client.properties"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "output": str(tmp_path / "output"),
    }
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 7
    for program in programs:
        exec(program, names)
    said, _ = capfd.readouterr()
    assert said.startswith("10\n")
    assert "\n128.0\n" in said
    assert said.endswith('{"orders": {"0": 10, "1": 10}}\n')
    written = sorted(int(row.value) for row in spark.read.parquet(names["output"]).collect())
    assert written == list(range(20))
    fast = sorted(int(row.value) for row in spark.read.parquet(names["output"] + "-fast").collect())
    assert fast == list(range(20))
    assert len(values(smq_broker, "numbers")) == 1000
    assert values(smq_broker, "copies") == list(range(20))
