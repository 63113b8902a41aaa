"""DescribeAcls (key 29), CreateAcls (key 30) and DeleteAcls (key 31), versions 1-3.

- Every rule that Kafka has is kept, also about what SMQ has no use for. A rule that is there
  already is created without effect.
- The answer goes out once the change is durable and in force on every node.
- Without an authorizer all of them are SECURITY_DISABLED: tools then report that there are no
  access rules rather than that the broker is too old.
- INVALID_REQUEST: a kind that Kafka does not have, ANY or MATCH in a rule, a rule about nothing, a
  cluster of another name, a principal without a kind. A kind of the code 0 closes the connection.
- Describing by a kind that Kafka does not have finds nothing.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from typing import TypeVar

from gateway.context import Step
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.access import AccessControl
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from smq.wire.generated.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from smq.wire.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from smq.wire.generated.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

DISABLED = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
# Per part of an answer, a few milliseconds each: described, deleted, and created.
PART_RULES, PART_DELETED, PART_CREATED = 500, 150, 50
FOUND_MAX = 100_000  # By several filters of a request, each of which may find every rule.
Kind = TypeVar("Kind", bound=IntEnum)


# --- describing ----------------------------------------------------------------------------------


def describe(
    request: DescribeAclsRequest, context: CoordinatorContext
) -> Iterator[DescribeAclsResponse]:
    """The rules that match, by resource pattern; answers in parts."""
    access = context.coordinator.access
    if access.authorizer is None:
        yield refuse_describing(request, DISABLED)
        return
    wanted = _filter_of(request)
    found: list[AclBinding] = []
    for some in access.find(wanted) if wanted is not None else ():
        found += some
        yield DescribeAclsResponse()
    found.sort(key=_pattern_of)
    yield DescribeAclsResponse()
    for first in range(0, max(1, len(found)), PART_RULES):
        part = groupby(found[first : first + PART_RULES], key=_pattern_of)
        yield DescribeAclsResponse(resources=[_described(*each) for each in part])


def refuse_describing(_request: DescribeAclsRequest, why: BrokerError) -> DescribeAclsResponse:
    """Refuse to describe rules."""
    return DescribeAclsResponse(error_code=why.code, error_message=why.message)


def _pattern_of(rule: AclBinding) -> ResourcePattern:
    return rule.pattern


def _described(pattern: ResourcePattern, rules: Iterable[AclBinding]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        acls=[
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for _, entry in rules
        ],
    )


# --- creating ------------------------------------------------------------------------------------


def create(request: CreateAclsRequest, context: CoordinatorContext) -> Iterator[CreateAclsResponse]:
    """Add each rule, or refuse it; in parts. Each part is in force when the next one begins.

    All rows are read before the first rule is added: one with a kind of the code 0 changes nothing.
    """
    access = context.coordinator.access
    if access.authorizer is None:
        yield refuse_creating(request, DISABLED)
        return
    rows, rules = request.creations, list[AclBinding | BrokerError]()
    for first in range(0, len(rows), PART_RULES):
        rules += map(_rule_of, rows[first : first + PART_RULES])
        yield CreateAclsResponse()
    for first in range(0, max(1, len(rules)), PART_CREATED):
        some = rules[first : first + PART_CREATED]
        yield CreateAclsResponse(results=[_created(each, access) for each in some])


def refuse_creating(request: CreateAclsRequest, why: BrokerError) -> CreateAclsResponse:
    """Refuse each rule."""
    refused = AclCreationResult(error_code=why.code, error_message=why.message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def _rule_of(row: AclCreation) -> AclBinding | BrokerError:
    """The rule of a row, or why there is none. Raises PeerError."""
    try:
        return _binding_of(row)
    except BrokerError as refusal:
        return refusal


def _created(rule: AclBinding | BrokerError, access: AccessControl) -> AclCreationResult:
    try:
        if isinstance(rule, BrokerError):
            raise rule
        access.create([rule])
    except BrokerError as refusal:
        return AclCreationResult(error_code=refusal.code, error_message=refusal.message)
    return AclCreationResult()


def _binding_of(row: AclCreation) -> AclBinding:
    """The rule of a row. Raises BrokerError, PeerError."""
    pattern = ResourcePattern(
        _only(_kind(ResourceType, row.resource_type), ResourceType.ANY),
        row.resource_name,
        _only(_kind(PatternType, row.resource_pattern_type), PatternType.ANY, PatternType.MATCH),
    )
    entry = AccessControlEntry(
        row.principal,
        row.host,
        _only(_kind(Operation, row.operation), Operation.ANY),
        _only(_kind(Permission, row.permission_type), Permission.ANY),
    )
    if not pattern.name:
        raise _invalid("Resource name should not be empty")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in entry.principal:
        raise _invalid(
            f"Could not parse principal from `{entry.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return AclBinding(pattern, entry)


# --- deleting ------------------------------------------------------------------------------------


def delete(
    request: DeleteAclsRequest, context: CoordinatorContext
) -> Iterator[DeleteAclsResponse | Step]:
    """Delete what each filter finds; answers in parts. All filters look at the rules as they were.

    What several filters find is told by each, but they may not find more than FOUND_MAX together.
    """
    access = context.coordinator.access
    if access.authorizer is None:
        yield from _refused(request, DISABLED)
        return
    found: dict[int, list[AclBinding]] = {}
    yield DeleteAclsResponse()
    for number, each in enumerate(request.filters):
        wanted, rules = _filter_of(each), list[AclBinding]()
        for some in access.find(wanted) if wanted is not None else ():
            rules += some
            yield DeleteAclsResponse()
        if rules:
            found[number] = rules
        if len(found) > 1 and sum(map(len, found.values())) > FOUND_MAX:
            yield from _refused(request, _invalid("The filters find too much: send fewer."))
            return
    for number, each in enumerate(request.filters):
        rules = found.get(number, [])
        for first in range(0, max(1, len(rules)), PART_DELETED):
            some = rules[first : first + PART_DELETED]
            access.delete(some)
            part = DeleteAclsResponse(filter_results=[_deleted(each, some)])
            yield Step(part, continues=first > 0)


def _deleted(row: DeleteAclsFilter, rules: list[AclBinding]) -> DeleteAclsFilterResult:
    """The row of a filter, and what it has found."""
    if _filter_of(row) is None:
        unknown = _invalid("A filter is of a kind that does not exist.")
        return DeleteAclsFilterResult(error_code=unknown.code, error_message=unknown.message)
    matching = [_matching(rule) for rule in rules]
    return DeleteAclsFilterResult(error_message=None, matching_acls=matching)


def refuse_deleting(request: DeleteAclsRequest, why: BrokerError) -> DeleteAclsResponse:
    """Refuse each filter."""
    return _refusals(len(request.filters), why)


def _refused(request: DeleteAclsRequest, why: BrokerError) -> Iterator[DeleteAclsResponse]:
    """The same in parts."""
    count = len(request.filters)
    for first in range(0, max(1, count), PART_DELETED):
        yield _refusals(min(PART_DELETED, count - first), why)


def _refusals(count: int, why: BrokerError) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=why.code, error_message=why.message)
    return DeleteAclsResponse(filter_results=[refused] * count)


def _matching(rule: AclBinding) -> DeleteAclsMatchingAcl:
    pattern, entry = rule
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


# --- words ---------------------------------------------------------------------------------------


def _filter_of(row: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter | None:
    """The filter of a row; None: of a kind that Kafka does not have. Raises PeerError."""
    resource_type = _kind(ResourceType, row.resource_type_filter)
    pattern_type = _kind(PatternType, row.pattern_type_filter)
    operation = _kind(Operation, row.operation)
    permission = _kind(Permission, row.permission_type)
    if resource_type is None or pattern_type is None or operation is None or permission is None:
        return None
    return AclBindingFilter(
        ResourcePatternFilter(resource_type, row.resource_name_filter, pattern_type),
        AccessControlEntryFilter(row.principal_filter, row.host_filter, operation, permission),
    )


def _kind(kinds: type[Kind], code: int) -> Kind | None:
    """The kind of a code; None: there is no such. Raises PeerError."""
    if code == 0:
        raise PeerError(f"{kinds.__name__} is UNKNOWN")
    return kinds(code) if code in kinds._value2member_map_ else None


def _only(kind: Kind | None, *of_filters: Kind) -> Kind:
    """A kind that a rule may have. Raises BrokerError."""
    if kind is None or kind in of_filters:
        raise _invalid("A rule is of a kind that does not exist, or that only filters have.")
    return kind


def _invalid(sentence: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, sentence)
