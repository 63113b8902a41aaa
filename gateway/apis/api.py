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

from gateway.apis.bounds import SMALL, Bounds, Cut
from smq.wire.api import API_BY_NAME


class Where(Enum):
    """Which process answers an API."""

    KERNEL = "kernel"
    SHARD = "shard"
    COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Api:
    """One row of the table: key and versions come from the codecs.

    `in_parts` splits a request that is too large for one step and whose parts depend on each other.
    """

    name: str
    where: Where
    codec: ModuleType
    handle: Callable[..., Any] | None
    left_out: str = ""
    bounds: Bounds = SMALL
    in_parts: Callable[..., Any] | None = None

    @cached_property
    def key(self) -> int:
        return API_BY_NAME[self.name].key

    @cached_property
    def versions(self) -> range:
        facts = API_BY_NAME[self.name]
        return range(facts.first_version, facts.last_version + 1)

    @cached_property
    def advertised(self) -> tuple[int, int, int]:
        first = 0 if self.where is Where.KERNEL else self.versions.start
        return self.key, first, self.versions.stop - 1

    @cached_property
    def read_request(self) -> Callable[..., Any]:
        return getattr(self.codec, f"read_{self._snake()}_request")  # type: ignore[no-any-return]

    @cached_property
    def write_response(self) -> Callable[..., Any]:
        return getattr(self.codec, f"write_{self._snake()}_response")  # type: ignore[no-any-return]

    def cut(self, version: int) -> Cut | None:
        """How a version is answered in parts; None: always whole."""
        return next((each for each in self.bounds.cuts if version >= each.first_version), None)

    def _snake(self) -> str:
        return self.codec.__name__.rpartition(".")[2]
