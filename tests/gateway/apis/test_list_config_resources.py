"""ListConfigResources: the resources with configs, by type."""

from pathlib import Path

import pytest

from gateway.apis import list_config_resources as module
from gateway.apis.list_config_resources import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    LOGGER,
    TOPIC,
)
from smq.model.catalog import CLIENT_METRICS as CLIENT_METRICS_RESOURCE, INTERNAL_TOPICS, Catalog
from smq.model.errors import ErrorCode
from smq.wire.generated.list_config_resources import ListConfigResourcesRequest
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NODES, topic

E = ErrorCode
BROKERS = [str(node.id) for node in NODES]


def ask(bench: ShardBench, *types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    request = ListConfigResourcesRequest(resource_types=types)
    answer = bench.ask("ListConfigResources", version, request)
    found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    return answer.error_code, found


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ((TOPIC,), {TOPIC: ["a", "b", *INTERNAL_TOPICS]}),
        ((BROKER,), {BROKER: BROKERS}),
        ((TOPIC, LOGGER, TOPIC), {LOGGER: BROKERS, TOPIC: ["a", "b", *INTERNAL_TOPICS]}),
        ((CLIENT_METRICS, GROUP), {}),
        ((), {LOGGER: BROKERS, BROKER: BROKERS, TOPIC: ["a", "b", *INTERNAL_TOPICS]}),
    ],
)
def test_each_type_has_its_names(
    tmp_path: Path, types: tuple[int, ...], names: dict[int, list[str]]
) -> None:
    """Data fault 37: in Kafka's order of kinds."""
    bench = ShardBench(tmp_path, topic("a", range(1, 2)), topic("b", range(2, 3)))
    expected = [(kind, name) for kind, each in names.items() for name in each]
    assert ask(bench, *types) == (E.NONE, expected)


def test_a_type_that_is_none_refuses_all(tmp_path: Path) -> None:
    assert ask(ShardBench(tmp_path, topic("a")), TOPIC, 9) == (E.UNSUPPORTED_VERSION, [])


def test_client_metrics_are_listed_in_both_versions(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("a"))
    assert ask(bench, version=0) == (E.NONE, [])
    published = bench.shard.catalog
    settings = {CLIENT_METRICS_RESOURCE: {"s": {"metrics": "*"}}}
    catalog = Catalog(
        published.cluster_id, published.version + 1, published.by_name, settings=settings
    )
    bench.shard.take_catalog(catalog, 2)
    assert ask(bench, version=0) == ask(bench, CLIENT_METRICS) == (E.NONE, [(CLIENT_METRICS, "s")])


def test_very_many_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_RESOURCES", 2)
    names = ["a", "b", "c"]
    topics = [topic(name, range(i, i + 1)) for i, name in enumerate(names, 1)]
    assert [name for _, name in ask(ShardBench(tmp_path, *topics), TOPIC)[1]] == [
        *names,
        *INTERNAL_TOPICS,
    ]
