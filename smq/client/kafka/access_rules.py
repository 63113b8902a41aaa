"""Lists, adds and deletes a broker's access rules, and decides as the broker does."""

from collections.abc import Sequence
from typing import Any

from smq.client.kafka.admin import broker_configs
from smq.client.kafka.answers import only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from smq.model.errors import PeerError
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.authorizer import Authorizer
from smq.security.principals import parse_super_users
from smq.security.rules import Rules
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest


def find_rules(cluster: Cluster, wanted: AclBindingFilter) -> list[AclBinding]:
    """The rules that a filter finds. Raises BrokerError."""
    pattern, entry = wanted
    request = DescribeAclsRequest(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
    answer = cluster.anyone().ask(DESCRIBE_ACLS, request)
    check(answer.error_code, answer.error_message)
    return [
        _rule(row.resource_type, row.resource_name, row.pattern_type, rule)
        for row in answer.resources
        for rule in row.acls
    ]


def authorizer_of(cluster: Cluster, rules: Sequence[AclBinding]) -> Authorizer | None:
    """One that decides like the broker's by some of its rules; None: the broker has none. Raises
    BrokerError."""
    settings = {each.name: each.value or "" for each in broker_configs(cluster)}
    if not settings.get("authorizer.class.name"):
        return None
    return Authorizer(
        Rules(rules),
        parse_super_users(settings.get("super.users", "")),
        allow_if_no_rule=settings.get("allow.everyone.if.no.acl.found") == "true",
    )


def add_rules(cluster: Cluster, rules: Sequence[AclBinding]) -> None:
    """Add rules; those that are there stay. Raises BrokerError."""
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in rules
    ]
    answer = cluster.anyone().ask(CREATE_ACLS, CreateAclsRequest(creations=creations))
    for result in answer.results:
        check(result.error_code, result.error_message)


def delete_rules(cluster: Cluster, wanted: AclBindingFilter) -> list[AclBinding]:
    """Delete the rules that a filter finds; returns them. Raises BrokerError."""
    pattern, entry = wanted
    filters = [
        DeleteAclsFilter(
            resource_type_filter=pattern.resource_type,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern_type,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
    ]
    answer = cluster.anyone().ask(DELETE_ACLS, DeleteAclsRequest(filters=filters))
    result = only(answer.filter_results, "filter")
    check(result.error_code, result.error_message)
    return [
        _rule(row.resource_type, row.resource_name, row.pattern_type, row)
        for row in result.matching_acls
    ]


def _rule(resource_type: int, name: str, pattern_type: int, said: object) -> AclBinding:
    """A rule as a broker says it. Raises PeerError."""
    row: Any = said
    try:
        return AclBinding(
            ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type)),
            AccessControlEntry(
                row.principal, row.host, Operation(row.operation), Permission(row.permission_type)
            ),
        )
    except ValueError as reason:
        raise PeerError(f"it has a rule of a kind that does not exist: {reason}") from reason
