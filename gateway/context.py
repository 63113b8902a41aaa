"""What handlers get and what they may answer. No IO, no clock.

A handler returns the response message, or

    Wait     a long poll: try again when one of the partitions moves, at the latest at a deadline
    Ask      something only the sealer knows: its answers make the response
    Relay    the coordinator answers this request
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from smq.shard.shard import Shard
from smq.wire.headers import RequestHeader

Message: TypeAlias = Any  # One of smq.wire.generated's responses.


@dataclass(frozen=True, slots=True)
class ShardContext:
    """A request that a shard answers itself."""

    header: RequestHeader
    shard: Shard
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Commands for the sealer (smq.sealer.commands), and what to make of the answers, in order.

    An answer is what stood under "ok", or None if the sealer could not say.
    """

    commands: Sequence[dict[str, Any]]
    then: Callable[[list[Any]], Message]


@dataclass(frozen=True, slots=True)
class Wait:
    """A long poll. `attempt(is_last)` gives a response or Ask, or None while there is too little.

    partitions   (log, slot) of those whose HWM may bring more
    """

    partitions: Sequence[tuple[int, int]]
    timeout_ms: int
    attempt: Callable[[bool], "Message | Ask | None"]


@dataclass(frozen=True, slots=True)
class Relay:
    """Have the coordinator answer."""


Result: TypeAlias = Message | Ask | Wait | Relay
