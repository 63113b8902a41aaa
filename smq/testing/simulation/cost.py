"""What a turn costs, without a clock: the bytes that it inflates, and the steps of logins.

The loop may inflate as much in a turn as its Room says (smq.shard.checks); jobs of lanes are run
between turns and do not count. Of connections that have not logged in it takes one step a turn, as
each is said to last as long as all of them may: whoever comes in the same turn waits in line.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from smq.app.shard.connections.tls_socket import NEWCOMERS_NS
from smq.shard import recompression, validation
from smq.shard.checks import ROOM_BYTES
from smq.wire.codec import Buffer
from smq.wire.compression import Codec, InflatesTooFar, decompress


class Inflated:
    """Counts what is inflated within `turn`. Raises AssertionError if that is too much."""

    def __init__(self) -> None:
        self._bytes = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn of a shard's loop."""
        self._bytes = 0
        for module in (validation, recompression):
            vars(module)["decompress"] = self._decompress
        try:
            yield
        finally:
            for module in (validation, recompression):
                vars(module)["decompress"] = decompress
        assert self._bytes <= ROOM_BYTES, f"a turn has inflated {self._bytes} bytes"

    def _decompress(self, codec: int, data: Buffer, bytes_max: int) -> Buffer:
        try:
            inflated = decompress(codec, data, bytes_max)
        except InflatesTooFar:
            self._bytes += bytes_max
            raise
        self._bytes += 0 if codec == Codec.NONE else len(inflated)
        return inflated


class NewcomersSteps:
    """Counts the steps of newcomers within `turn`. Raises AssertionError if they are too many."""

    def __init__(self) -> None:
        self._readings = 0

    def now_ns(self) -> int:
        """For SharedTurn, which reads it before and after a step."""
        self._readings += 1
        return self._readings * NEWCOMERS_NS

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A turn of a shard's loop."""
        before = self._readings
        yield
        steps = (self._readings - before) // 2
        assert steps <= 1, f"a turn has taken {steps} steps of newcomers"
