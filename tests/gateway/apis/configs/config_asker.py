"""Asks for configs and changes them, as clients do."""

from typing import Any

from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.gateway.coordinator_bench import CoordinatorBench

SET, DELETE, APPEND = range(3)


def change(
    bench: CoordinatorBench,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    node_id: int = 1,
) -> Any:
    """The error of a change, and its sentence."""
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [result] = bench.ask("IncrementalAlterConfigs", 1, request, node_id).responses
    return result.error_code, result.error_message


def describe(bench: CoordinatorBench, kind: int, name: str, node_id: int = 1) -> dict[str, Any]:
    """Each config by its name: value, source, and the values and sources of its synonyms."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [result] = bench.ask("DescribeConfigs", 4, request, node_id).results
    assert not result.error_code, result.error_message
    return {
        each.name: (
            each.value,
            each.config_source,
            [(like.value, like.source) for like in each.synonyms],
        )
        for each in result.configs
        if (name, each.name) != ("", "min.insync.replicas")  # Set for all brokers, as in Kafka.
    }
