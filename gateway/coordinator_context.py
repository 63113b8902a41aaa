"""Arguments and answers of the handlers of the coordinator's APIs. No IO, no clock.

A handler returns the response message, or None if the answer comes later through a ticket. Where a
group decides, every answer goes through a ticket, so that there is one way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from smq.coordinator.coordinator import Coordinator
from smq.coordinator.inputs import Now
from smq.coordinator.mutations import Charge
from smq.model.catalog import Node
from smq.wire.headers import RequestHeader

Message: TypeAlias = Any  # One of smq.wire.generated's responses.


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request whose answer comes later: where the answer goes, and what makes the response."""

    origin: object
    respond: Callable[[Any], Message]


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """A request that a node has relayed. `origin` is for whoever sends the answer.

    `described`: names that its earlier portions have answered, for handlers that answer each once.
    """

    header: RequestHeader
    client_host: str
    node_id: int
    nodes: list[Node]
    coordinator: Coordinator
    now: Now
    origin: object
    described: dict[str, None] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return self.header.api_version

    def charge(self, strict_from: int) -> Charge:
        """What this request is charged for changing topics; from a version on it may be refused."""
        return self.coordinator.mutations.of(
            self.coordinator.settings.quotas,
            self.header.client_id,
            self.now.monotonic_ms,
            strict=self.version >= strict_from,
        )

    def ticket(self, respond: Callable[[Any], Message]) -> Ticket:
        """A ticket for this request; `respond` makes the response of what a group answers."""
        return Ticket(self.origin, respond)
