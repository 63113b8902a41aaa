"""DescribeConfigs (key 32), versions 1-4.

- TOPIC: every config of smq.model.topic_configs with its effective value and its source.
  INVALID_TOPIC_EXCEPTION for an impossible name, UNKNOWN_TOPIC_OR_PARTITION for no topic.
- BROKER: the settings of the named node, which must be the one asked, and under Kafka's names its
  listeners and log directory; "" means the values set for all brokers.
- BROKER_LOGGER, CLIENT_METRICS, GROUP: see gateway.apis.configs.
- A resource that is asked for twice with the same keys is described once.
- Some or all (null or empty) keys; synonyms if asked: the values that would apply in turn.
- From 3: types, and documentation if asked (KIP-569).
"""

from collections.abc import Hashable, Iterator

from gateway.apis.configs.entries import invalid
from gateway.apis.configs.kinds import KINDS, check_rights
from gateway.coordinator_context import CoordinatorContext
from smq.model.errors import BrokerError
from smq.security.acls import Operation
from smq.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

PART_RESOURCES = 10  # Per part of an answer: each has dozens of configs, a few microseconds each.


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
    kind = KINDS.get(resource.resource_type)
    try:
        if kind is None:
            raise invalid(f"Unsupported resource type: {resource.resource_type}")
        name, rights = resource.resource_name, context.rights
        check_rights(resource.resource_type, name, Operation.DESCRIBE_CONFIGS, rights)
        entries = kind.describe(resource.resource_name, context)
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
