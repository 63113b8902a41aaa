"""Subscriptions to the metrics of clients (KIP-714): the configs of `client-metrics` resources.

A subscription names metrics by prefix (`*`: all), the push interval, and its clients: each clause
of `match`, `attribute=pattern`, must match. Without clauses it is for every client; of two clauses
for one attribute the last counts, as in Kafka.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from smq.model.config_values import ConfigType, parsed
from smq.model.errors import BrokerError
from smq.model.patterns import Pattern

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
CONFIG_CHARACTERS_MAX = 4096
TEXT_MAX = 255  # Characters of a client's id that patterns see.
SUBSCRIPTIONS_MAX = 100  # Each client is matched with all of them.


class MetricsConfig(NamedTuple):
    """A config of a subscription."""

    type: ConfigType
    default: str
    doc: str


CONFIGS: Mapping[str, MetricsConfig] = {
    INTERVAL_MS: MetricsConfig(
        ConfigType.INT, str(INTERVAL_MS_DEFAULT), "How often a client pushes, in milliseconds."
    ),
    MATCH: MetricsConfig(
        ConfigType.LIST, "", "The clients it is for: attribute=pattern, separated by commas."
    ),
    METRICS: MetricsConfig(
        ConfigType.LIST, "", "Prefixes of the metrics' names, separated by commas; * for all."
    ),
}


class ClientFacts(NamedTuple):
    """The attributes of a client that `match` can name."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription whose configs are valid."""

    metrics: tuple[str, ...]
    interval_ms: int
    clauses: Mapping[str, Pattern]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "Subscription":
        """Raises ValueError with a sentence for an invalid value."""
        interval_ms = parsed(ConfigType.INT, configs.get(INTERVAL_MS, str(INTERVAL_MS_DEFAULT)))
        assert isinstance(interval_ms, int)
        clauses = _elements(configs.get(MATCH, ""))
        return cls(
            tuple(_elements(configs.get(METRICS, ""))),
            interval_ms,
            dict(_clause(each) for each in clauses),
        )

    def is_for(self, client: ClientFacts) -> bool:
        """Whether it is for a client."""
        return all(
            pattern.matches(getattr(client, name)[:TEXT_MAX])
            for name, pattern in self.clauses.items()
        )


class WantedMetrics(NamedTuple):
    """What a client must push: the union of all its subscriptions, at the shortest interval."""

    metrics: tuple[str, ...]
    interval_ms: int


def wanted_of(subscriptions: Iterable[Subscription], client: ClientFacts) -> WantedMetrics:
    """Compute what a client must push."""
    metrics, interval_ms = set[str](), INTERVAL_MS_DEFAULT
    for each in subscriptions:
        if each.is_for(client):
            metrics.update(each.metrics)
            interval_ms = min(interval_ms, each.interval_ms)
    named = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return WantedMetrics(named, interval_ms)


def _elements(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _clause(text: str) -> tuple[str, Pattern]:
    name, _, pattern = (part.strip() for part in text.partition("="))
    if name not in ClientFacts._fields or not pattern or "=" in pattern:
        raise ValueError(f"Illegal client matching pattern: {text}")
    try:
        return name, Pattern(pattern)
    except BrokerError:
        raise ValueError(f"Illegal client matching pattern: {text}") from None
