"""The configs of groups: none. Kafka has some for groups of other protocols than the classic one.

Tools that describe a group find no configs; setting one is refused.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gateway.apis.configs.entries import invalid, invalid_config
from gateway.apis.configs.kind import Configs, ResourceKind
from gateway.coordinator_context import CoordinatorContext
from smq.store.config_changes import Changer
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

_NOTHING: Mapping[str, str] = MappingProxyType({})


def _describe(name: str, context: CoordinatorContext) -> list[DescribeConfigsResourceResult]:
    _own(name, context)
    return []


def _own(name: str, _context: CoordinatorContext) -> Mapping[str, str]:
    if not name:
        raise invalid("Group name must not be empty")
    return _NOTHING


def _listed(_name: str, _config_name: str, _context: CoordinatorContext) -> None:
    """No config is a list."""


def _replace(
    _name: str, configs: Configs, _by: Changer, _context: CoordinatorContext, *, validate_only: bool
) -> None:
    del validate_only
    if configs:
        raise invalid_config(
            f"Groups have no configs here, and so no {next(iter(configs))}: groups are classic ones"
            ", whose timeouts their members choose."
        )


GROUPS = ResourceKind(_describe, _own, _listed, _replace)
