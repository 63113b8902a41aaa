"""The configs of topics."""

from collections.abc import Mapping

from gateway.apis.configs.entries import Layers, Source, broker_synonyms, invalid, synonym
from gateway.apis.configs.kind import Configs, ResourceKind
from gateway.coordinator_context import CoordinatorContext
from smq.model.catalog import Topic
from smq.model.config_values import ConfigType
from smq.model.errors import BrokerError, ErrorCode
from smq.model.live_config import in_force
from smq.model.names import topic_name_problem
from smq.model.topic_configs import TOPIC_CONFIGS, TopicConfig, broker_default, own_or_default
from smq.store.config_changes import Changer
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult


def topic_entries(own: Mapping[str, str], layers: Layers) -> list[DescribeConfigsResourceResult]:
    """Every config of a topic with these values of its own, with its synonyms and documentation."""
    return [_entry(config, own, layers) for config in TOPIC_CONFIGS.values()]


def _entry(
    config: TopicConfig, own: Mapping[str, str], layers: Layers
) -> DescribeConfigsResourceResult:
    synonyms = []
    if config.name in own:
        synonyms.append(synonym(config.name, own[config.name], Source.TOPIC))
    if config.broker_key:
        synonyms += broker_synonyms(config.broker_key, layers, config.default)
    fallback = broker_default(config, in_force(*layers))
    return DescribeConfigsResourceResult(
        name=config.name,
        value=own.get(config.name, fallback),
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=synonyms,
        config_type=config.type,
        documentation=config.doc,
    )


def _find(name: str, context: CoordinatorContext) -> Topic:
    problem = topic_name_problem(name)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    return context.coordinator.topics.find(name)


def _describe(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    internal = context.coordinator.topics.catalog.find(name)
    topic = _find(name, context) if internal is None or not internal.is_internal else internal
    return topic_entries(topic.configs, Layers.of(context))


def _own(name: str, context: CoordinatorContext) -> Mapping[str, str]:
    if not name:
        raise invalid("Default topic resources are not allowed.")
    return _find(name, context).configs


def _listed(name: str, config_name: str, context: CoordinatorContext) -> str | None:
    config = TOPIC_CONFIGS.get(config_name)
    if config is None or config.type != ConfigType.LIST:
        return None
    return own_or_default(config_name, _own(name, context), in_force(*Layers.of(context)))


def _replace(
    name: str, configs: Configs, by: Changer, context: CoordinatorContext, *, validate_only: bool
) -> None:
    topic = _find(name, context)
    context.coordinator.topics.configure(topic, configs, by, validate_only=validate_only)


TOPICS = ResourceKind(_describe, _own, _listed, _replace)
