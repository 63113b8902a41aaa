"""A descriptor that another thread makes readable: it wakes a thread that waits for descriptors.

    thread A: wait_readable([wake.fileno(), …]); wake.clear()        thread B: wake.wake()

An eventfd on Linux, elsewhere a pair of sockets.
"""

import os
import socket
import sys
from contextlib import suppress

CLEARED_BYTES = 4096


class SocketWake:
    """A pair of sockets: also Windows can wait for one."""

    def __init__(self) -> None:
        self._receiving, self._sending = socket.socketpair()
        self._receiving.setblocking(False)  # noqa: FBT003  (the socket's own signature)
        self._sending.setblocking(False)  # noqa: FBT003

    def fileno(self) -> int:
        """Readable from `wake` to `clear`."""
        return self._receiving.fileno()

    def wake(self) -> None:
        """Make it readable. Raises OSError once it is closed."""
        with suppress(BlockingIOError):  # It is full: one more byte would change nothing.
            self._sending.send(b"\0")

    def clear(self) -> None:
        """Make it unreadable until the next `wake`."""
        with suppress(BlockingIOError):
            while self._receiving.recv(CLEARED_BYTES):
                pass

    def close(self) -> None:
        """Close it. In a forked child: close the copy."""
        self._receiving.close()
        self._sending.close()


if sys.platform == "linux":

    class EventWake:
        """An eventfd. See SocketWake."""

        def __init__(self) -> None:
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def fileno(self) -> int:
            """See SocketWake."""
            return self._fd

        def wake(self) -> None:
            """See SocketWake."""
            os.eventfd_write(self._fd, 1)

        def clear(self) -> None:
            """See SocketWake."""
            with suppress(BlockingIOError):
                os.eventfd_read(self._fd)

        def close(self) -> None:
            """See SocketWake."""
            os.close(self._fd)

    Wake = EventWake
else:
    Wake = SocketWake
