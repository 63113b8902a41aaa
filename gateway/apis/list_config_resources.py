"""ListConfigResources (key 74), versions 0-1 (KIP-1142).

- Version 0 lists the client metrics.
- From 1: topics, brokers, loggers (by their broker), client metrics and groups (none has configs);
  without a type, all of these, in Kafka's order: groups first, topics last. UNSUPPORTED_VERSION for
  any other type.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from gateway.context import ShardContext
from smq.model.catalog import CLIENT_METRICS as CLIENT_METRICS_RESOURCE
from smq.model.errors import BrokerError, ErrorCode
from smq.shard.shard import Shard
from smq.wire.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TYPES_FROM = 1
PART_RESOURCES = 2000


def handle(
    request: ListConfigResourcesRequest, context: ShardContext
) -> Iterator[ListConfigResourcesResponse]:
    """Name the resources that have configs, in parts."""
    has_types = context.header.api_version >= TYPES_FROM
    types = set((request.resource_types or _NAMES) if has_types else (CLIENT_METRICS,))
    if not types <= _NAMES.keys():
        yield ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return
    found = [
        (kind, name) for kind in sorted(types, reverse=True) for name in _NAMES[kind](context.shard)
    ]
    for first in range(0, max(1, len(found)), PART_RESOURCES):
        resources = [
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in found[first : first + PART_RESOURCES]
        ]
        yield ListConfigResourcesResponse(config_resources=resources)


def refuse(_request: ListConfigResourcesRequest, why: BrokerError) -> ListConfigResourcesResponse:
    """Name nothing."""
    return ListConfigResourcesResponse(error_code=why.code)


def _brokers(shard: Shard) -> Iterable[str]:
    return (str(node.id) for node in shard.nodes())


def _client_metrics(shard: Shard) -> Iterable[str]:
    return shard.catalog.settings.get(CLIENT_METRICS_RESOURCE, {})


def _nothing(_shard: Shard) -> Iterable[str]:
    return ()


_NAMES: Mapping[int, Callable[[Shard], Iterable[str]]] = {
    TOPIC: lambda shard: (topic.name for topic in shard.catalog.all()),
    BROKER: _brokers,
    LOGGER: _brokers,
    CLIENT_METRICS: _client_metrics,
    GROUP: _nothing,
}
