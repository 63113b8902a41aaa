"""The coordinator draws leader epochs, of the counter of generations that the supervisor keeps.

    coordinator ──serial──▶ supervisor     takes the next generation, durably
    coordinator ◀──serial, epoch──         -1: the disk did not take it

Both counters are one, so that the epochs of a partition rise whoever leads it next: a target in a
drawn epoch, or a shard in the generation of its start. A pair of sockets without a name, of which
only these two processes have an end, outlives the coordinator. An answer for a coordinator before
this one has a serial that this one did not send, and is left.
"""

import secrets
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from smq.app.process.inheritance import COORDINATOR, SUPERVISOR
from smq.app.process.loop import Loop

_ASKED = struct.Struct("<Q")  # The serial of a question.
_ANSWERED = struct.Struct("<Qq")  # Likewise, and the epoch.
NONE_LEFT = -1  # Instead of an epoch: the counter could not be raised durably.


def epoch_sockets() -> dict[str, socket.socket]:
    """A new pair, by the process that has the end."""
    kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    return dict(
        zip((COORDINATOR, SUPERVISOR), socket.socketpair(socket.AF_UNIX, kind), strict=True)
    )


def give_epochs(loop: Loop, end: socket.socket, take: Callable[[], int]) -> None:
    """Answer with what `take` returns, one question a turn. `take` may raise OSError."""

    def asked(_events: int) -> None:
        (serial,) = _ASKED.unpack(end.recv(_ASKED.size))
        try:
            epoch = take()
        except OSError:
            epoch = NONE_LEFT
        with suppress(BlockingIOError):  # A coordinator that takes no answers asks again.
            end.send(_ANSWERED.pack(serial, epoch))

    loop.register(end.fileno(), select.EPOLLIN, asked)


class EpochDraws:
    """The coordinator's end. `end` is None: there is no supervisor, and no epoch."""

    def __init__(self, loop: Loop, end: socket.socket | None) -> None:
        self._end = end
        self._serial = secrets.randbits(63)
        self._waiting: dict[int, Callable[[int | None], None]] = {}
        if end is not None:
            loop.register(end.fileno(), select.EPOLLIN, self._answered)

    def draw(self, drawn: Callable[[int | None], None]) -> None:
        """Ask for an epoch; `drawn` gets it, or None, at once or later, or never."""
        self._serial += 1
        try:
            if self._end is None:
                raise BlockingIOError
            self._end.send(_ASKED.pack(self._serial))
        except OSError:
            drawn(None)
        else:
            self._waiting[self._serial] = drawn

    def forget(self) -> None:
        """Leave the answers to all that was asked."""
        self._waiting.clear()

    def _answered(self, _events: int) -> None:
        assert self._end is not None
        serial, epoch = _ANSWERED.unpack(self._end.recv(_ANSWERED.size))
        drawn = self._waiting.pop(serial, None)
        if drawn is not None:
            drawn(None if epoch == NONE_LEFT else epoch)
