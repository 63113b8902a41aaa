"""The settings of brokers: of a node, by its id, and of all nodes ("").

A node's own value takes precedence over the one for all nodes, and that over the value at start.
The table of settings (smq.model.config) says which can change.
"""

from collections.abc import Iterator, Mapping

from gateway.apis.configs.entries import (
    SET_FOR_ALL,
    Layers,
    Source,
    broker_synonyms,
    check_broker,
    synonym,
    text_of,
    type_of,
)
from gateway.apis.configs.kind import Configs, ResourceKind
from gateway.coordinator_context import CoordinatorContext
from smq.model.catalog import BROKER, Node
from smq.model.config import SETTINGS, Config, bracketed
from smq.model.config_values import ConfigType
from smq.model.live_config import ALL_NODES, in_force
from smq.model.setting import Setting, Update
from smq.security.listeners import listeners_of
from smq.store.config_changes import Changer
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

# Kafka's broker settings that tools ask for, and that are not settings here.
FIXED_BROKER_CONFIGS = {
    "compression.type": (ConfigType.STRING, "producer"),
    "default.replication.factor": (ConfigType.INT, "1"),
    "delete.topic.enable": (ConfigType.BOOLEAN, "true"),
    "log.cleanup.policy": (ConfigType.LIST, "delete"),
    "log.message.timestamp.type": (ConfigType.STRING, "CreateTime"),
    "min.insync.replicas": (ConfigType.INT, "1"),
}
# Settings are the first node's; each node shows its own.
OF_EACH_NODE = {"node.id", "listeners", "advertised.listeners"}


def _describe(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    if name == ALL_NODES:
        return _of_all(context)
    check_broker(name, context.node_id, " or empty string,")
    layers = Layers.of(context)
    config = in_force(*layers)
    entries = [
        _entry(each, each.shown(getattr(config, each.key)), layers)
        for each in SETTINGS.values()
        if each.name not in OF_EACH_NODE
    ]
    entries += [_fixed_entry(each, layers) for each in FIXED_BROKER_CONFIGS]
    for node in context.nodes:
        if node.id == context.node_id:
            entries += _places(node, config)
    return sorted(entries, key=lambda entry: entry.name)


def _of_all(context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    """The values set for all nodes."""
    source = Source.DYNAMIC_DEFAULT_BROKER
    changed = context.coordinator.settings.changed.get(ALL_NODES, {})
    fixed = [_fixed_entry(name, Layers.of(context)) for name in SET_FOR_ALL]
    for each in fixed:
        each.synonyms = [like for like in each.synonyms if like.source == source]
    return fixed + [
        DescribeConfigsResourceResult(
            name=name,
            value=value,
            config_source=source,
            synonyms=[synonym(name, value, source)],
            config_type=type_of(SETTINGS[name]),
            documentation=SETTINGS[name].doc,
        )
        for name, value in sorted(changed.items())
    ]


def _entry(setting: Setting, value: object, layers: Layers) -> DescribeConfigsResourceResult:
    synonyms = list(broker_synonyms(setting.name, layers))
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.secret else text_of(value),
        is_sensitive=setting.secret,
        read_only=setting.update is Update.READ_ONLY,
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=synonyms,
        config_type=type_of(setting),
        documentation=setting.doc,
    )


def _places(node: Node, config: Config) -> Iterator[DescribeConfigsResourceResult]:
    """The node's id, listeners and log directory."""
    listening, advertised = _listeners(node, config)
    values = {
        "advertised.listeners": (ConfigType.LIST, advertised),
        "listeners": (ConfigType.LIST, listening),
        "log.dirs": (ConfigType.LIST, str(config.log_dir)),
        "node.id": (ConfigType.INT, str(node.id)),
    }
    for name, (kind, value) in values.items():
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=Source.STATIC_BROKER,
            synonyms=[synonym(name, value, Source.STATIC_BROKER)],
            config_type=kind,
            documentation="Follows from the settings of listeners, shards and data.dir.",
        )


def _listeners(node: Node, config: Config) -> tuple[str, str]:
    """Where a node listens, and where clients reach it. Of a listener that picks a free port only
    the one is known by which was asked; through a unix socket (without a port) none is."""
    listeners, index = listeners_of(config), config.node_ids.index(node.id)
    is_told = len(listeners) == 1 and node.port > 0
    known = node.port if is_told else 0
    listening, advertised = [], []
    for each in listeners:
        port = each.listen_port(index) or known
        listening.append(f"{each.name}://{bracketed(each.listens.host)}:{port}")
        host, port = (node.host, node.port) if is_told else each.advertised(index, port)
        advertised.append(f"{each.name}://{bracketed(host)}:{port}")
    return ",".join(listening), ",".join(advertised)


def _fixed_entry(name: str, layers: Layers) -> DescribeConfigsResourceResult:
    kind, value = FIXED_BROKER_CONFIGS[name]
    synonyms = list(broker_synonyms(name, layers, value))
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=synonyms[0].source,
        synonyms=synonyms,
        config_type=kind,
        documentation="Cannot be set here.",
    )


def _own(name: str, context: CoordinatorContext) -> Mapping[str, str]:
    if name != ALL_NODES:
        check_broker(name, context.node_id, " or empty string,")
    return context.coordinator.settings.configs(BROKER, name)


def _listed(_name: str, _config_name: str, _context: CoordinatorContext) -> None:
    """No setting is a list."""


def _replace(
    name: str, configs: Configs, by: Changer, context: CoordinatorContext, *, validate_only: bool
) -> None:
    given = {key: text for key, text in configs.items() if text is not None}
    coordinator = context.coordinator
    coordinator.settings.configure_broker(name, given, by, validate_only=validate_only)
    if not validate_only:
        coordinator.take_settings()


BROKERS = ResourceKind(_describe, _own, _listed, _replace)
