"""Metrics that a real client pushes: librdkafka does so by default, as it is subscribed."""

import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from smq.app.front.telemetry import telemetry_of
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.oracle.talk import Talk

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

CLIENT_METRICS, CLIENT_ID, PATIENCE_S = 16, "pusher", 120.0
PREFIX = "org.apache.kafka.producer.connection."


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path) as broker:
        yield broker


def subscribe(broker: SmqBroker, **configs: str) -> None:
    changes = [
        AlterableConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
    ]
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="s", configs=changes
    )
    talk = Talk(broker.port, "subscribe", 1)
    answer = talk.quietly(IncrementalAlterConfigsRequest(resources=[resource]))
    talk.close()
    assert [each.error_code for each in answer.responses] == [0]


def test_librdkafka_pushes_what_it_is_subscribed_to(broker: SmqBroker) -> None:
    match = f"client_id={CLIENT_ID},client_software_name=.*rdkafka.*|confluent.*"
    subscribe(broker, metrics=PREFIX, interval_ms="500", match=match)
    page = telemetry_of(broker.runtime_dir, range(1, 2))
    pushed = Producer({"bootstrap.servers": broker.bootstrap, "client.id": CLIENT_ID})
    other = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "other"})
    deadline = time.monotonic() + PATIENCE_S
    rows: dict[str, dict[str, Any]] = {}
    while rows.get(CLIENT_ID, {}).get("push_count", 0) < 3 or "other" not in rows:
        assert time.monotonic() < deadline, rows
        for producer in (pushed, other):
            producer.produce("t", b"value")
            assert producer.flush(60) == 0
        rows = {each["client_id"]: each for each in page()}
    row = rows[CLIENT_ID]
    assert row["software_version"]
    assert (row["subscribed"], row["interval_ms"], row["error"]) == ([PREFIX], 500, "NONE")
    assert row["inflated_bytes"] > 0
    assert rows["other"]["subscribed"] == []
    assert rows["other"]["push_count"] == 0
    if find_spec("opentelemetry") is not None:
        assert row["metrics"]
        assert all(name.startswith(PREFIX) for name in row["metrics"])
