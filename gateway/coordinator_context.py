"""Arguments and answers of the handlers of the coordinator's APIs. No IO, no clock.

A handler returns the response message, or None if the answer comes later through a ticket. Answers
that a group decides all go through tickets, so that there is one path.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from smq.coordinator.coordinator import Coordinator
from smq.coordinator.mutations import Charge
from smq.model.catalog import Node
from smq.model.now import Now
from smq.security.rights import Rights
from smq.wire.headers import RequestHeader

Message: TypeAlias = Any  # One of smq.wire.generated's responses.


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request whose answer comes later: its destination, and the function that makes the
    response."""

    origin: object
    respond: Callable[[Any], Message]


@dataclass(slots=True)
class AnswerSoFar:
    """What the portions of an answer have told so far, for handlers that bound it: how many bytes,
    and the metadata of which offsets, by group and partition number."""

    size: int = 0
    offsets: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """A request that a node has relayed. `origin` is for the sender of the answer; `rights` are
    those of the client.

    described  names that earlier portions have answered, for handlers that answer each once
    told       what earlier portions have told
    """

    header: RequestHeader
    rights: Rights
    node_id: int
    nodes: list[Node]
    coordinator: Coordinator
    now: Now
    origin: object
    described: dict[str, None] = field(default_factory=dict)
    told: AnswerSoFar = field(default_factory=AnswerSoFar)

    @property
    def client_host(self) -> str:
        """The address of the client."""
        return self.rights.peer.host

    @property
    def version(self) -> int:
        return self.header.api_version

    def charge(self, strict_from: int) -> Charge:
        """The quota charge of a request that changes topics; newer versions may be refused."""
        return self.coordinator.mutations.of(
            self.coordinator.settings.quotas,
            self.rights.peer.principal.name,
            self.header.client_id,
            self.now.monotonic_ms,
            strict=self.version >= strict_from,
        )

    def ticket(self, respond: Callable[[Any], Message]) -> Ticket:
        """A ticket for this request; `respond` turns a group's answer into the response."""
        return Ticket(self.origin, respond)
