"""AlterConfigs (key 33), versions 0-2; IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339).

- AlterConfigs replaces all configs that a resource has of its own; IncrementalAlterConfigs sets or
  deletes some of them, and appends to or subtracts from lists. gateway.apis.configs has the types.
- The store records who changed what, when, and the former value (`smq config history`).
- The answer goes out once the new values are in the catalog, from which every process reads.
- A resource changes as a whole or not at all. INVALID_CONFIG: an unknown name, a bad
  value, or too much for one resource. POLICY_VIOLATION: too much for all resources of its type.
  INVALID_REQUEST: a resource or a config that comes twice, a null value, a bad value of a
  broker's setting, or a setting that needs a restart. UNKNOWN_TOPIC_OR_PARTITION: no such topic.
- validate_only only checks.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias

from gateway.apis.configs.entries import invalid
from gateway.apis.configs.kind import Configs, ResourceKind
from gateway.apis.configs.kinds import KINDS, Resource, check_rights
from gateway.apis.configs.parts import parts_of
from gateway.coordinator_context import CoordinatorContext
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation as AclOperation
from smq.store.config_changes import Changer
from smq.wire.codec import STRING_BYTES_MAX
from smq.wire.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from smq.wire.generated.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
    AlterConfigsResource as IncrementalResource,
    AlterConfigsResourceResponse as IncrementalResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    """An operation on a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


AnyResource: TypeAlias = AlterConfigsResource | IncrementalResource
NewConfigs: TypeAlias = Callable[[ResourceKind, CoordinatorContext], Configs]


def handle(
    request: AlterConfigsRequest, context: CoordinatorContext
) -> Iterator[AlterConfigsResponse]:
    """Replace the configs of each resource or refuse; answers in parts."""
    change = _Change(request.resources, context, validate_only=request.validate_only)
    for resources in parts_of(request.resources, _characters):
        responses = [
            AlterConfigsResourceResponse(**change.carry_out(each, partial(_replaced, each)))
            for each in resources
        ]
        yield AlterConfigsResponse(responses=responses)


def handle_incremental(
    request: IncrementalAlterConfigsRequest, context: CoordinatorContext
) -> Iterator[IncrementalAlterConfigsResponse]:
    """Change some configs of each resource or refuse; answers in parts."""
    change = _Change(request.resources, context, validate_only=request.validate_only)
    for resources in parts_of(request.resources, _characters):
        responses = []
        for each in resources:
            new = partial(_changed, each)
            response = IncrementalResourceResponse(**change.carry_out(each, new))
            responses.append(response)
        yield IncrementalAlterConfigsResponse(responses=responses)


def _characters(resource: AnyResource) -> int:
    return sum(len(each.value or "") for each in resource.configs)


class _Change:
    """The resources that a request changes, each named once."""

    def __init__(
        self, resources: Sequence[AnyResource], context: CoordinatorContext, *, validate_only: bool
    ) -> None:
        self._counts = Counter((each.resource_type, each.resource_name) for each in resources)
        self._context = context
        self._validate_only = validate_only
        client = context.header.client_id or "", context.client_host
        self._by = Changer(*client, context.now.wall_ms)

    def carry_out(self, resource: AnyResource, new: NewConfigs) -> dict[str, Any]:
        """Change one resource or refuse it; returns the fields of its row in the answer."""
        kind, name = resource.resource_type, resource.resource_name
        row: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "resource_type": kind,
            "resource_name": name,
        }
        try:
            if self._counts[kind, name] > 1:
                raise invalid("Each resource must appear at most once.")
            _check_configs(resource)
            found = KINDS.get(kind)
            if found is None:
                raise invalid(f"Unknown resource type {kind}")
            if kind == Resource.BROKER_LOGGER and isinstance(resource, AlterConfigsResource):
                raise invalid("The log levels of a broker change one by one.")
            check_rights(kind, name, AclOperation.ALTER_CONFIGS, self._context.rights)
            configs = new(found, self._context)
            found.replace(name, configs, self._by, self._context, validate_only=self._validate_only)
        except BrokerError as refusal:
            sentence = refusal.message or "This server does not host this topic-partition."
            return row | {"error_code": refusal.code, "error_message": sentence}
        return row | {"error_message": None}


def _check_configs(resource: AnyResource) -> None:
    """Refuse null values and configs that come twice."""
    nulls = [each.name for each in resource.configs if each.value is None and not _deletes(each)]
    if nulls:
        raise invalid(f"Null value not supported for : {', '.join(nulls)}")
    if len({each.name for each in resource.configs}) < len(resource.configs):
        raise invalid("Error due to duplicate config keys")


def _deletes(config: AlterableConfig | IncrementalConfig) -> bool:
    if isinstance(config, AlterableConfig):
        return False
    return config.config_operation == Operation.DELETE


def _replaced(
    resource: AlterConfigsResource, kind: ResourceKind, context: CoordinatorContext
) -> Configs:
    kind.own(resource.resource_name, context)
    return {each.name: each.value for each in resource.configs}


def _changed(
    resource: IncrementalResource, kind: ResourceKind, context: CoordinatorContext
) -> Configs:
    configs: Configs = dict(kind.own(resource.resource_name, context))
    for each in resource.configs:
        if each.config_operation == Operation.DELETE:
            configs.pop(each.name, None)
        elif each.config_operation == Operation.SET:
            configs[each.name] = each.value
        else:
            listed = kind.listed(resource.resource_name, each.name, context)
            configs[each.name] = _changed_list(each, listed)
    return configs


def _changed_list(change: IncrementalConfig, listed: str | None) -> str:
    """A list with more or fewer elements."""
    if change.config_operation not in {Operation.APPEND, Operation.SUBTRACT}:
        raise invalid(f"Unknown operation {change.config_operation}")
    appends = change.config_operation == Operation.APPEND
    if listed is None:
        verb = "append to" if appends else "subtract from"
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {verb} key {change.name} because its type is not LIST.",
        )
    given, now = dict.fromkeys(_elements(change.value or "")), _elements(listed)
    if appends:
        longer = ",".join(dict.fromkeys([*now, *given]))
        if len(longer.encode()) > STRING_BYTES_MAX:
            sentence = f"{change.name} would have more than {STRING_BYTES_MAX} bytes."
            raise BrokerError(ErrorCode.INVALID_CONFIG, sentence)
        return longer
    return ",".join(each for each in now if each not in given)


def _elements(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
