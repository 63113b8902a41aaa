"""How a config is described: its value, the source of that, and the values behind it."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from gateway.coordinator_context import CoordinatorContext
from smq.model.config import INT32_MAX, SETTINGS, Config
from smq.model.config_values import ConfigType
from smq.model.errors import BrokerError, ErrorCode
from smq.model.live_config import ALL_NODES, Changed
from smq.model.setting import Setting
from smq.wire.generated.describe_configs import DescribeConfigsSynonym


class Source(IntEnum):
    """Where a value is from: Kafka's ConfigSource (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


# Kafka's log.retention.ms has no default: behind a value of it stands another setting's default.
RETENTION_MS, RETENTION_HOURS = "log.retention.ms", ("log.retention.hours", "168")

# Kafka's controller sets these for all brokers (KIP-966).
SET_FOR_ALL = {"min.insync.replicas": "1"}


class Layers(NamedTuple):
    """The settings of a node: those at start, and the changes since."""

    started: Config
    changed: Changed
    node: str

    @classmethod
    def of(cls, context: CoordinatorContext) -> "Layers":
        """The layers of the node that received the request."""
        settings = context.coordinator.settings
        return cls(settings.started, settings.changed, str(context.node_id))


def synonym(name: str, value: str | None, source: Source) -> DescribeConfigsSynonym:
    """One source that a value may come from."""
    return DescribeConfigsSynonym(name=name, value=value, source=source)


def broker_synonyms(
    name: str, layers: Layers, default: str | None = None
) -> Iterator[DescribeConfigsSynonym]:
    """The values of a broker's setting, the first of which holds.

    `default`: the setting's default as text, for entries that no setting describes.
    """
    setting = SETTINGS.get(name)
    is_set = False
    if setting is not None:
        for node, source in (
            (layers.node, Source.DYNAMIC_BROKER),
            (ALL_NODES, Source.DYNAMIC_DEFAULT_BROKER),
        ):
            changed = layers.changed.get(node, {}).get(name)
            if changed is not None:
                is_set = True
                yield synonym(name, None if setting.secret else changed, source)
        value = getattr(layers.started, setting.key)
        if value != setting.default:
            is_set = True
            text = None if setting.secret else text_of(value)
            yield synonym(name, text, Source.STATIC_BROKER)
        default = default or text_of(setting.default)
    if name in SET_FOR_ALL:
        yield synonym(name, SET_FOR_ALL[name], Source.DYNAMIC_DEFAULT_BROKER)
    if name == RETENTION_MS and is_set:
        yield synonym(*RETENTION_HOURS, Source.DEFAULT)
    elif name != RETENTION_MS and default is not None:
        yield synonym(name, default, Source.DEFAULT)


def type_of(setting: Setting) -> ConfigType:
    """Kafka's type of a broker's setting."""
    if setting.secret:
        return ConfigType.PASSWORD
    if setting.type is int:
        small = setting.at_most is not None and setting.at_most <= INT32_MAX
        return ConfigType.INT if small else ConfigType.LONG
    return ConfigType.BOOLEAN if setting.type is bool else ConfigType.STRING


def text_of(value: object) -> str:
    """A value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_broker(name: str, node_id: int, or_empty: str = "") -> None:
    """Refuse the name of another broker than the one that was asked."""
    if not name.isdecimal() or not name.isascii():
        raise invalid(f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise invalid(f"Unexpected broker id, expected {node_id}{or_empty} but received {name}")


def invalid(sentence: str) -> BrokerError:
    """INVALID_REQUEST."""
    return BrokerError(ErrorCode.INVALID_REQUEST, sentence)


def invalid_config(sentence: str) -> BrokerError:
    """INVALID_CONFIG."""
    return BrokerError(ErrorCode.INVALID_CONFIG, sentence)
