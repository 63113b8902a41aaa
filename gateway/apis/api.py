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
from typing import Any

from gateway.apis.bounds import SMALL, Bounds
from smq.wire.api import WireApi


class Where(Enum):
    """Which process answers an API."""

    KERNEL = "kernel"
    SHARD = "shard"
    COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Api:
    """One row of the table: key, versions and codec come from the registry.

    `in_parts` splits a request that is too large for one step and whose parts depend on each other.
    """

    wire: WireApi[Any, Any]
    where: Where
    handle: Callable[..., Any] | None
    left_out: str = ""
    bounds: Bounds = SMALL
    in_parts: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        _ = self.codec  # Loaded now: before the forks, which share it.

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
