"""A channel to one broker: whole Produce requests go out, answers come in, both in order.

There are two kinds: a socket (`wire_channel`) and a door to a shard (`smq.client.door.door`). When
a channel is lost the broker may or may not have appended the batches in flight. The accumulator
sends them again.
"""

from typing import Protocol

import numpy as np

from shm.kernels.record.records_encode import One
from smq.client.producing.encode.batch_writer import Stamp

REQUEST_BYTES_MAX = 2**31 - 1  # The largest that the size field can express.


class Channel(Protocol):
    """Raises ChannelGone from all of these. One thread at a time uses it, and one may poll.

    is_quiet           whether answers wake no poller, unless `arm` has asked for that
    request_bytes_max  the largest request it ever has room for, with its size
    """

    is_quiet: bool
    request_bytes_max: int

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        """Room to write a request of at most this size, uint8; None: there is none for now."""

    def send_one(
        self, size_bytes: int, head: np.ndarray, correlation_id: int, one: One, stamp: Stamp
    ) -> bool:
        """Send a request of one record that is not compressed; False: there is no room for now."""

    def commit(self, used_bytes: int) -> None:
        """Send what was written into the room."""

    def answers(self) -> list[bytes]:
        """The answers that have arrived, in the order of the requests, without their sizes."""

    def push(self) -> None:
        """Send the bytes that the other end did not take at once."""

    def fileno(self) -> int:
        """The descriptor to poll, between `arm` and `disarm`; -1 once the channel is gone."""

    def arm(self) -> bool:
        """Have the next answer wake the thread that polls; False: there is one already."""

    def disarm(self) -> bool:
        """The polling thread is awake; returns whether there may be answers."""

    def events(self) -> int:
        """What to wait for: READABLE, and WRITABLE while there is something to push."""

    def close(self) -> None:
        """End the channel."""

    def forget(self) -> None:
        """In a forked child: close the copy; the parent's channel stays open."""
