"""Accepts connections on a listening socket, in every process of SMQ.

A turn takes several: those who come quickly from one address would else keep others waiting in the
backlog, which is one queue.

Without free descriptors a listening socket stays readable, and the loop would spin: the acceptor
pauses for a while, and clients wait in the backlog.
"""

import select
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop

ACCEPT_AGAIN_MS = 100  # The pause after running out of descriptors.
# Of a turn; the first is always taken. Beside the newcomers' steps it stays within 10 ms.
ACCEPTS_MAX, ACCEPT_NS = 64, 2_000_000

Accepted: TypeAlias = Callable[[socket.socket, Any], None]
Welcome: TypeAlias = Callable[[socket.socket], bool]


class Acceptor:
    """Calls `accepted(socket, address)` for each connection; the socket is non-blocking.

    A connection that is not welcome is closed.
    """

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        accepted: Accepted,
        is_welcome: Welcome = lambda _: True,
    ) -> None:
        self._loop, self._listener, self._accepted = loop, listener, accepted
        self._is_welcome = is_welcome
        self._is_stopped = False
        listener.setblocking(False)  # noqa: FBT003
        self._listen()

    def stop(self) -> None:
        """Stop accepting. The listener stays open: its maker owns it."""
        self._is_stopped = True
        self._loop.unregister(self._listener.fileno())

    def _listen(self) -> None:
        if not self._is_stopped:
            self._loop.register(self._listener.fileno(), select.EPOLLIN, self._ready)

    def _ready(self, _events: int) -> None:
        end_ns = monotonic_ns() + ACCEPT_NS
        for _ in range(ACCEPTS_MAX):
            if self._is_stopped or not self._accept() or monotonic_ns() >= end_ns:
                return

    def _accept(self) -> bool:
        """Take one who has come; False: none more for now."""
        try:
            sock, address = self._listener.accept()
        except BlockingIOError:
            return False
        except ConnectionError:  # Of a client that has gone meanwhile.
            return True
        except OSError:
            self._loop.unregister(self._listener.fileno())
            self._loop.call_later(ACCEPT_AGAIN_MS, self._listen)
            return False
        if not self._is_welcome(sock):
            sock.close()
            return True
        sock.setblocking(False)  # noqa: FBT003
        self._accepted(sock, address)
        return True
