"""What a turn costs, without a clock: the bytes that it inflates.

The loop may inflate as much in a turn as its Room says (smq.shard.checks); jobs of lanes are run
between turns and do not count.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
