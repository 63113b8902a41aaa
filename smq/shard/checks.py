"""Checks batches whose records must be read: small ones in the loop, others in a background lane.

    Check   a generator that ends with the verdict. It yields a Job when others must have the loop
            meanwhile: its driver runs the job in a lane and sends the result back, or goes on in a
            later turn where it yields NOTHING, and sends the time then (Now)
    Room    what the checks of one turn may inflate in the loop, all clients' together

A check may be dropped at any time, and begun again.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from smq.model.errors import ErrorCode
from smq.shard.answers import RefusedRecord

MiB = 1024 * 1024
ROOM_BYTES = MiB  # Inflating and walking so much takes some milliseconds.
CHECK_BYTES = 8192  # What each check takes of that, however small its batch: tens of microseconds.

Job: TypeAlias = Callable[[], Any]


class Verdict(NamedTuple):
    """The verdict on a batch: NONE, or an error and the records that it concerns.

    `instead`: the batch to append in its place.
    """

    error: ErrorCode
    refused: Sequence[RefusedRecord]
    instead: np.ndarray | None = None


GOOD = Verdict(ErrorCode.NONE, [])

Check: TypeAlias = Generator[Job | None, Any, Verdict]
NOTHING = None


class TurnRoom:
    """How many bytes the checks of this turn may still inflate in the loop."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = ROOM_BYTES

    def begin_turn(self) -> None:
        """There is room again."""
        self.left = ROOM_BYTES

    def take(self, size: int) -> bool:
        """Take `size` bytes of the room; False: there are not enough."""
        if size > self.left:
            return False
        self.left -= size
        return True
