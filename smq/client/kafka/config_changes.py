"""Changes configs of topics and settings of brokers."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from smq.client.errors import Act
from smq.client.kafka.admin import RESOURCE_BROKER, configs_of
from smq.client.kafka.answers import only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import INCREMENTAL_ALTER_CONFIGS
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

ALL_BROKERS = ""


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with a config (KIP-339)."""

    SET = 0
    DELETE = 1


def alter_configs(
    broker: KafkaConnection,
    resource_type: int,
    name: str,
    new: Mapping[str, str],
    unset: Iterable[str],
) -> None:
    """Set some configs of a resource, and unset others: all of it, or nothing.

    Raises BrokerError.
    """
    configs = [
        AlterableConfig(name=key, config_operation=Operation.SET, value=value)
        for key, value in new.items()
    ] + [AlterableConfig(name=key, config_operation=Operation.DELETE, value=None) for key in unset]
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = only(broker.ask(INCREMENTAL_ALTER_CONFIGS, request).responses, "resource")
    check(response.error_code, response.error_message, Act("change configs of", topic=name))


def alter_broker(
    cluster: Cluster, broker: str, new: Mapping[str, str], unset: Iterable[str]
) -> None:
    """Change settings of a broker, by its id, or of all brokers, as above."""
    alter_configs(_asked(cluster, broker), RESOURCE_BROKER, broker, new, unset)


def changed_settings(cluster: Cluster, broker: str) -> Sequence[DescribeConfigsResourceResult]:
    """The settings of a broker, by its id; for all brokers, the values set for all."""
    return configs_of(_asked(cluster, broker), RESOURCE_BROKER, broker)


def _asked(cluster: Cluster, broker: str) -> KafkaConnection:
    """Who answers about a broker: itself; about all of them: any."""
    if broker == ALL_BROKERS:
        return cluster.anyone()
    cluster.metadata([])
    return cluster.broker(int(broker))
