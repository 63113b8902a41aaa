"""A schema registry keeps its schemas in SMQ, through its own death and that of a shard."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker
from tests.frameworks.registry import Registry, registry

pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(900)]

SUBJECT = "orders-value"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    # The registry creates its topics with as many replicas as there are nodes.
    with SmqBroker(tmp_path / "broker", {"shards": "1"}) as started:
        yield started


def order(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


FIRST = order({"name": "id", "type": "long"})
COMPATIBLE = order(
    {"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}
)


def schema(found: Registry, path: str) -> object:
    return json.loads(found.ask(path)["schema"])


def test_schemas_outlive_the_registry_and_a_shard(broker: Broker, tmp_path: Path) -> None:
    output = tmp_path / "registry.log"
    with registry(broker.bootstrap, output) as first:
        one = first.register(SUBJECT, FIRST)
        assert first.register(SUBJECT, FIRST) == one
        assert schema(first, f"/schemas/ids/{one}") == FIRST
    broker.kill("shard-1")
    broker.restart()
    with registry(broker.bootstrap, output) as second:
        assert second.ask("/subjects") == [SUBJECT]
        assert schema(second, f"/subjects/{SUBJECT}/versions/latest") == FIRST
        two = second.register(SUBJECT, COMPATIBLE)
        assert two != one
        assert second.ask(f"/subjects/{SUBJECT}/versions") == [1, 2]
        assert schema(second, f"/schemas/ids/{two}") == COMPATIBLE
        assert schema(second, f"/schemas/ids/{one}") == FIRST
