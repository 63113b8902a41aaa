"""The arguments of handlers, and the answers they may return. No IO, no clock.

A handler returns the response message, or

    Wait     a long poll: try again when one of the partitions moves, at the latest at a deadline
    Ask      questions to the sealer or a background thread; their answers make the response
    Relay    the coordinator answers this request
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from smq.model.catalog import InternalPartition, Node
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.security.acls import Operation, ResourceType
from smq.security.caller import Caller
from smq.security.rights import Rights
from smq.shard.led import Led
from smq.shard.loans import Loan
from smq.shard.shard import Shard
from smq.wire.headers import RequestHeader
from smq.wire.internal.form import Question

Message: TypeAlias = Any  # One of smq.wire.generated's responses.
LogSlot: TypeAlias = tuple[int, int]  # A partition as a shard knows it: (log, slot).


@dataclass(frozen=True, slots=True)
class ShardContext:
    """A request that a shard answers itself.

    `loan` is the answer's. `described`: names that earlier portions have answered, for handlers
    that answer each once.
    """

    header: RequestHeader
    shard: Shard
    now: Now
    caller: Caller = field(default_factory=Caller)
    loan: Loan = field(default_factory=Loan)
    described: dict[str, None] = field(default_factory=dict)

    def find(
        self, operation: Operation, name: str, index: int
    ) -> Led | InternalPartition | ErrorCode:
        """The partition of a topic that its client may use so, or why not."""
        refused = self.rights.error(operation, ResourceType.TOPIC, name)
        return refused or self.shard.find_named(name, index)

    @property
    def nodes(self) -> list[Node]:
        """All nodes, with the addresses of the listener through which its client asks."""
        return self.shard.nodes(self.rights.peer.listener)

    @property
    def rights(self) -> Rights:
        """What its client may do, now."""
        return self.caller.rights


@dataclass(frozen=True, slots=True)
class Later:
    """Work that takes milliseconds or waits for the disk: `begin(done)` starts it elsewhere.

    `done(answer)` is called in the loop, perhaps at once.
    """

    begin: Callable[[Callable[[Any], None]], None]


@dataclass(frozen=True, slots=True)
class Ask:
    """Questions to the sealer and work for other threads; `then` takes their answers in order.

    The sealer's answer has the question's type, or is Failed if the sealer could not answer.
    """

    questions: Sequence[Question[Any] | Later]
    then: "Callable[[list[Any]], Message | Ask]"


class Step(NamedTuple):
    """The result of one step of a request: see gateway.parts.

    result     the response to a portion, Ask, Relay or Wait; None: nothing yet
    continues  the response's first outer row may be the last one of the response before
    """

    result: Any
    continues: bool = False


class Attempt(Protocol):
    """Evaluates a waiting request from scratch."""

    def __call__(self, *, is_last: bool) -> Message | Ask | Step | None: ...


@dataclass(slots=True)
class Wait:
    """A long poll. `attempt` and `moved` return a response or Ask; None: there is too little yet. A
    request that is read in portions returns Step, and reads them again.

    find_codes  log << 32 | slot of each partition whose HWM may bring more, as the last attempt
                found them: a topic that is created again has other places than before. Of very
                many an array, ascending
    attempt     called when the catalog has changed or the time is over
    moved       called when the HWM of some has moved, with their codes: looks at nothing else.
                None: `attempt` is called
    has_moved   one has moved already: no need to wait
    due_ns      the deadline (monotonic), which the caller sets when the first wait begins
    """

    find_codes: Callable[[], Sequence[int] | np.ndarray]
    timeout_ms: int
    attempt: Attempt
    moved: Callable[[Sequence[int]], Message | Ask | None] | None = None
    has_moved: bool = False
    due_ns: int = 0

    def look(self, codes: Sequence[int]) -> Message | Ask | Step | None:
        """Evaluate it after the HWM of these has moved."""
        return self.attempt(is_last=False) if self.moved is None else self.moved(codes)


@dataclass(frozen=True, slots=True)
class Relay:
    """Have the coordinator answer."""


Result: TypeAlias = Message | Ask | Wait | Relay
