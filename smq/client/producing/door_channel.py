"""The channel through shared memory: a shard's door (smq.client.door.door)."""

import select
from contextlib import suppress

import numpy as np

from shm.kernels.record.records_encode import One
from smq.client.door.door import Door, DoorGone, InboxFull
from smq.client.producing.batch_writer import Stamp
from smq.client.producing.channel import ChannelGone


class DoorChannel:
    """See smq.client.producing.channel."""

    is_quiet = True

    def __init__(self, door: Door) -> None:
        self._door = door
        self.request_bytes_max = door.request_bytes_max

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        """Room in the inbox, if there is some."""
        try:
            return self._door.reserve(size_bytes, 0)
        except InboxFull:
            return None
        except DoorGone as error:
            raise ChannelGone(str(error)) from error

    def send_one(
        self, size_bytes: int, head: np.ndarray, correlation_id: int, one: One, stamp: Stamp
    ) -> bool:
        """A kernel does it in one call."""
        try:
            return self._door.send_one(size_bytes, head, correlation_id, one, stamp)
        except DoorGone as error:
            raise ChannelGone(str(error)) from error

    def commit(self, used_bytes: int) -> None:
        """Publish a request, and wake the shard if it sleeps."""
        try:
            self._door.commit(used_bytes)
        except DoorGone as error:
            raise ChannelGone(str(error)) from error

    def answers(self) -> list[bytes]:
        """The answers that are whole."""
        try:
            return self._door.answers()
        except DoorGone as error:
            raise ChannelGone(str(error)) from error

    def push(self) -> None:
        """Nothing is kept on this side."""

    def fileno(self) -> int:
        """The attach socket's, over which the shard rings."""
        return self._door.fileno()

    def arm(self) -> bool:
        """Ask to be rung for."""
        return self._door.arm()

    def disarm(self) -> None:
        """Ask no more."""
        with suppress(DoorGone):  # `answers` will say so.
            self._door.disarm()

    def events(self) -> int:
        """What to poll for."""
        return select.POLLIN

    def close(self) -> None:
        """Leave."""
        self._door.close()

    def forget(self) -> None:
        """Let be what is the parent's."""
        self._door.forget()
