"""The configs of client metrics: subscriptions by which clients push their metrics (KIP-714)."""

from collections.abc import Mapping

from gateway.apis.configs.entries import Source, invalid, invalid_config, synonym
from gateway.apis.configs.kind import Configs, ResourceKind
from gateway.coordinator_context import CoordinatorContext
from smq.model.catalog import CLIENT_METRICS as RESOURCE
from smq.model.client_metrics import (
    CONFIG_CHARACTERS_MAX,
    CONFIGS,
    INTERVAL_MS_MAX,
    INTERVAL_MS_MIN,
    SUBSCRIPTIONS_MAX,
    MetricsConfig,
    Subscription,
)
from smq.model.errors import BrokerError, ErrorCode
from smq.store.config_changes import Changer
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

NAME_CHARACTERS_MAX = 255


def _describe(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    own = _own(name, context)
    return [_entry(key, config, own.get(key)) for key, config in CONFIGS.items()]


def _entry(key: str, config: MetricsConfig, own: str | None) -> DescribeConfigsResourceResult:
    source = Source.DEFAULT if own is None else Source.CLIENT_METRICS
    return DescribeConfigsResourceResult(
        name=key,
        value=config.default if own is None else own,
        config_source=source,
        synonyms=[] if own is None else [synonym(key, own, source)],
        config_type=config.type,
        documentation=config.doc,
    )


def _own(name: str, context: CoordinatorContext) -> Mapping[str, str]:
    if not name:
        raise invalid("Client metrics subscription name must not be empty")
    return context.coordinator.settings.configs(RESOURCE, name)


def _listed(_name: str, _config_name: str, _context: CoordinatorContext) -> None:
    """Kafka appends to none of them either."""


def _replace(
    name: str, configs: Configs, by: Changer, context: CoordinatorContext, *, validate_only: bool
) -> None:
    given = {key: text.strip() for key, text in configs.items() if text is not None}
    _check(name, given)
    coordinator = context.coordinator
    names = coordinator.settings.names(RESOURCE)
    if given and name not in names and len(names) >= SUBSCRIPTIONS_MAX:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"There are {SUBSCRIPTIONS_MAX} subscriptions: delete the configs of some first.",
        )
    coordinator.settings.configure(RESOURCE, name, given, by, validate_only=validate_only)
    if not validate_only:
        coordinator.take_settings()


def _check(name: str, configs: Mapping[str, str]) -> None:
    if len(name) > NAME_CHARACTERS_MAX:
        raise invalid(f"A subscription's name has at most {NAME_CHARACTERS_MAX} characters")
    for key, text in configs.items():
        if key not in CONFIGS:
            raise invalid(f"Unknown client metrics configuration: {key}")
        if len(text) > CONFIG_CHARACTERS_MAX:
            raise invalid_config(f"{key} has at most {CONFIG_CHARACTERS_MAX} characters")
    try:
        interval_ms = Subscription.of(configs).interval_ms
    except ValueError as reason:
        raise invalid_config(str(reason)) from reason
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise invalid(
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )


CLIENT_METRICS = ResourceKind(_describe, _own, _listed, _replace)
