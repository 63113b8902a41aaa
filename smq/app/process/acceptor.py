"""Accepting connections on a listening socket, as every process of ours does it.

When the descriptors are all used up, a listening socket stays readable and the loop would turn in
vain: it is left alone for a while, and those who connect wait in its backlog.
"""

import select
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from smq.app.process.loop import Loop

ACCEPT_AGAIN_MS = 100  # After the descriptors were all used up.

Accepted: TypeAlias = Callable[[socket.socket, Any], None]


class Acceptor:
    """Calls `accepted(socket, address)` for each connection that comes; the socket never blocks."""

    def __init__(self, loop: Loop, listener: socket.socket, accepted: Accepted) -> None:
        self._loop, self._listener, self._accepted = loop, listener, accepted
        self._is_stopped = False
        listener.setblocking(False)  # noqa: FBT003
        self._listen()

    def stop(self) -> None:
        """Accept nobody any more. The listener stays open: it is its maker's."""
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
        sock.setblocking(False)  # noqa: FBT003
        self._accepted(sock, address)
