"""What a row of the table of APIs is.

SHARD       every node answers it itself
COORDINATOR a node relays it unchanged to the coordinator, which answers from the same table
KERNEL      Produce: parsed, appended and answered by shm.kernels.request.produce
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

from gateway.apis.bounds import SMALL, Bounds
from smq.model.errors import BrokerError
from smq.security.acls import Operation, ResourceType
from smq.wire.api import WireApi


class Where(Enum):
    """Which process answers an API."""

    KERNEL = "kernel"
    SHARD = "shard"
    COORDINATOR = "coordinator"


class Right(NamedTuple):
    """What a client may need to be allowed: an operation on resources of a type."""

    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource_type.name}"


def needs(*rights: str) -> tuple[Right, ...]:
    """Rights as the table writes them: `READ TOPIC`."""
    words = (each.split() for each in rights)
    return tuple(Right(Operation[operation], ResourceType[kind]) for operation, kind in words)


@dataclass(frozen=True)
class Api:
    """One row of the table: key, versions and codec come from the registry.

    `in_parts` splits a request that is too large for one step and whose parts depend on each other.

    rights   what its clients may need, where an authorizer is on; a handler asks for no other
    refuse   makes the answer to a client without the first of them, which is on the cluster; None:
             the handler asks and answers itself
    """

    wire: WireApi[Any, Any]
    where: Where
    handle: Callable[..., Any] | None
    left_out: str = ""
    bounds: Bounds = SMALL
    in_parts: Callable[..., Any] | None = None
    rights: tuple[Right, ...] = ()
    refuse: Callable[[Any, BrokerError], Any] | None = None

    def __post_init__(self) -> None:
        _ = self.codec  # Loaded now: before the forks, which share it.
        if self.refuse is not None:
            assert self.rights[0].resource_type is ResourceType.CLUSTER

    @property
    def name(self) -> str:
        return self.wire.name

    @property
    def key(self) -> int:
        return self.wire.key

    @property
    def versions(self) -> range:
        return self.wire.versions

    @property
    def codec(self) -> ModuleType:
        return self.wire.codec

    @cached_property
    def advertised(self) -> tuple[int, int, int]:
        first = 0 if self.where is Where.KERNEL else self.versions.start
        return self.key, first, self.versions.stop - 1

    @cached_property
    def read_request(self) -> Callable[..., Any]:
        return self.wire.read_request

    @cached_property
    def write_response(self) -> Callable[..., Any]:
        return self.wire.write_response
