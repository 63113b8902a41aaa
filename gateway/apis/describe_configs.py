"""DescribeConfigs (key 32), versions 1-4.

- TOPIC: every config of smq.model.topic_configs with the value that holds and where it is from.
  INVALID_TOPIC_EXCEPTION for an impossible name, UNKNOWN_TOPIC_OR_PARTITION for no topic.
- BROKER: the broker's settings, read-only, asked of the node that the name says, and under Kafka's
  names where it listens and keeps its files; "" is the default of all brokers, of which nothing is
  set.
- A resource that is asked for twice in the same way is described once.
- Some or all (null or empty) keys; synonyms if asked: what would hold if the first were not set.
- From 3: types, and documentation if asked (KIP-569).

Left out: other resources (loggers, client metrics, groups): INVALID_REQUEST.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from enum import IntEnum

from gateway.coordinator_context import CoordinatorContext
from smq.model.config import INT32_MAX, SETTINGS, Config, bracketed
from smq.model.config_values import ConfigType
from smq.model.errors import BrokerError, ErrorCode
from smq.model.names import topic_name_problem
from smq.model.setting import Setting
from smq.model.topic_configs import TOPIC_CONFIGS, TopicConfig, broker_default
from smq.shard.shard import Node
from smq.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


class Resource(IntEnum):
    """The types of resources that can be described."""

    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """Where a value is from."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


# Kafka's log.retention.ms has no default: where it is set, that of another setting is behind it.
RETENTION_MS, RETENTION_HOURS = "log.retention.ms", ("log.retention.hours", "168")

PART_RESOURCES = 10  # Of an answer: each has dozens of configs, a few microseconds each.

# Kafka's broker settings that tools ask for, and that are not settings here.
FIXED_BROKER_CONFIGS = {
    "compression.type": "producer",
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "log.cleanup.policy": "delete",
    "log.message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


def handle(
    request: DescribeConfigsRequest, context: CoordinatorContext
) -> Iterator[DescribeConfigsResponse]:
    """Describe each resource, in parts."""
    once = list({_asked(each): each for each in request.resources}.values())
    for first in range(0, max(1, len(once)), PART_RESOURCES):
        yield DescribeConfigsResponse(
            results=[
                _describe(each, request, context) for each in once[first : first + PART_RESOURCES]
            ]
        )


def _asked(resource: DescribeConfigsResource) -> Hashable:
    return (
        resource.resource_type,
        resource.resource_name,
        frozenset(resource.configuration_keys or ()),
    )


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: CoordinatorContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    entries_of = _RESOURCES.get(resource.resource_type)
    try:
        if entries_of is None:
            raise _invalid(f"Unsupported resource type: {resource.resource_type}")
        entries = entries_of(resource.resource_name, context)
    except BrokerError as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message or ""
        return result
    keys = resource.configuration_keys
    result.configs = [_shown(each, request) for each in entries if not keys or each.name in keys]
    return result


def _shown(
    entry: DescribeConfigsResourceResult, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    if not request.include_synonyms:
        entry.synonyms = []
    if not request.include_documentation:
        entry.documentation = None
    return entry


def _topic(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = context.coordinator.topics.catalog.by_name.get(name)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic_entries(topic.configs, context.coordinator.config)


def topic_entries(own: Mapping[str, str], broker: Config) -> list[DescribeConfigsResourceResult]:
    """Every config of a topic with these values of its own, with its synonyms and documentation."""
    return [_topic_entry(config, own, broker) for config in TOPIC_CONFIGS.values()]


def _topic_entry(
    config: TopicConfig, own: Mapping[str, str], broker: Config
) -> DescribeConfigsResourceResult:
    synonyms = []
    if config.name in own:
        synonyms.append(_synonym(config.name, own[config.name], Source.TOPIC))
    fallback = broker_default(config, broker)
    is_set = bool(config.broker_key) and fallback != config.default
    if is_set:
        synonyms.append(_synonym(config.broker_key, fallback, Source.STATIC_BROKER))
    if config.broker_key == RETENTION_MS:
        synonyms += [_synonym(*RETENTION_HOURS, Source.DEFAULT)] if is_set else []
    elif config.broker_key:
        synonyms.append(_synonym(config.broker_key, config.default, Source.DEFAULT))
    return DescribeConfigsResourceResult(
        name=config.name,
        value=own.get(config.name, fallback),
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=synonyms,
        config_type=config.type,
        documentation=config.doc,
    )


def _synonym(name: str, value: str, source: Source) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def _broker(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    if not name:
        return []
    if not name.isdecimal():
        raise _invalid(f"Broker id must be an integer, but it is: {name}")
    if int(name) != context.node_id:
        raise _invalid(
            f"Unexpected broker id, expected {context.node_id} or empty string, but received {name}"
        )
    config = context.coordinator.config
    entries = [
        _broker_entry(each, value)
        for each, value in zip(SETTINGS.values(), config.values().values(), strict=True)
    ]
    entries += [_fixed_entry(each, value) for each, value in FIXED_BROKER_CONFIGS.items()]
    for node in context.nodes:
        if node.id == context.node_id:
            entries += _places(node, config)
    return sorted(entries, key=lambda entry: entry.name)


def _broker_entry(setting: Setting, value: object) -> DescribeConfigsResourceResult:
    synonyms = [_synonym(setting.name, _text(setting.default), Source.DEFAULT)]
    if value != setting.default:
        synonyms.insert(0, _synonym(setting.name, _text(value), Source.STATIC_BROKER))
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=_text(value),
        read_only=True,
        config_source=synonyms[0].source,
        synonyms=synonyms,
        config_type=_type(setting),
        documentation=setting.doc,
    )


def _type(setting: Setting) -> ConfigType:
    if setting.type is int:
        small = setting.at_most is not None and setting.at_most <= INT32_MAX
        return ConfigType.INT if small else ConfigType.LONG
    return ConfigType.BOOLEAN if setting.type is bool else ConfigType.STRING


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _places(node: Node, config: Config) -> Iterator[DescribeConfigsResourceResult]:
    """Which node it is, where it listens and where its files are."""
    listening = bracketed(config.host), config.listen_port(node.id) or node.port
    values = {
        "advertised.listeners": (ConfigType.LIST, _listener(bracketed(node.host), node.port)),
        "listeners": (ConfigType.LIST, _listener(*listening)),
        "log.dirs": (ConfigType.LIST, str(config.log_dir)),
        "node.id": (ConfigType.INT, str(node.id)),
    }
    for name, (kind, value) in values.items():
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=Source.STATIC_BROKER,
            synonyms=[_synonym(name, value, Source.STATIC_BROKER)],
            config_type=kind,
            documentation="Follows from the settings host, port, advertise, shards and data.dir.",
        )


def _listener(host: str, port: int) -> str:
    return f"PLAINTEXT://{host}:{port}"


def _fixed_entry(name: str, value: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=Source.DEFAULT,
        synonyms=[_synonym(name, value, Source.DEFAULT)],
        config_type=ConfigType.STRING,
        documentation="Cannot be set here.",
    )


_RESOURCES: Mapping[
    int, Callable[[str, CoordinatorContext], Collection[DescribeConfigsResourceResult]]
] = {Resource.TOPIC: _topic, Resource.BROKER: _broker}


def _invalid(sentence: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, sentence)
