"""Accepts connections on a listening socket, in every process of SMQ.

Without free descriptors a listening socket stays readable, and the loop would spin: the acceptor
pauses for a while, and clients wait in the backlog.
"""

import select
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from smq.app.process.loop import Loop

ACCEPT_AGAIN_MS = 100  # The pause after running out of descriptors.

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
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            self._loop.unregister(self._listener.fileno())
            self._loop.call_later(ACCEPT_AGAIN_MS, self._listen)
            return
        if not self._is_welcome(sock):
            sock.close()
            return
        sock.setblocking(False)  # noqa: FBT003
        self._accepted(sock, address)
