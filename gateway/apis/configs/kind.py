"""A type of resource: how its configs are described and changed. All may raise BrokerError."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from gateway.coordinator_context import CoordinatorContext
from smq.store.config_changes import Changer
from smq.wire.generated.describe_configs import DescribeConfigsResourceResult

Configs = dict[str, str | None]


class Replace(Protocol):
    """Gives a resource other configs in place of its own, or only checks them."""

    def __call__(
        self,
        name: str,
        configs: Configs,
        by: Changer,
        context: CoordinatorContext,
        /,
        *,
        validate_only: bool,
    ) -> None: ...


class ResourceKind(NamedTuple):
    """What can be done with the resources of one type.

    own      the configs set on a resource
    listed   the value of a list config; None: the config is no list
    replace  of `own`
    """

    describe: Callable[[str, CoordinatorContext], Collection[DescribeConfigsResourceResult]]
    own: Callable[[str, CoordinatorContext], Mapping[str, str]]
    listed: Callable[[str, str, CoordinatorContext], str | None]
    replace: Replace
