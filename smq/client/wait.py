"""Waits until one of some descriptors is ready: with poll, or on Windows with select.

poll takes any descriptor; select takes sockets there, which is all that the SDK waits for.
"""

import select
import sys
import threading
from collections.abc import Iterable, Mapping

READABLE, WRITABLE = 1, 4  # poll's POLLIN and POLLOUT, which Windows lacks.


def select_ready(watched: Mapping[int, int], seconds: float | None) -> list[int]:
    """See `ready`."""
    if not watched:  # Windows refuses to wait for nothing.
        threading.Event().wait(seconds)
    readers = [fd for fd, events in watched.items() if events & READABLE]
    writers = [fd for fd, events in watched.items() if events & WRITABLE]
    try:
        readable, writable, _ = select.select(readers, writers, [], seconds)
    except (OSError, ValueError):  # Another thread has closed one. poll calls that ready too.
        return [*watched]
    return [*{*readable, *writable}]


if sys.platform == "win32":
    ready = select_ready
else:

    def ready(watched: Mapping[int, int], seconds: float | None) -> list[int]:
        """Those descriptors for which READABLE or WRITABLE, as wanted, becomes true in time.

        None: wait for one. A descriptor that has failed or is closed counts as ready.
        """
        poll = select.poll()
        for fd, events in watched.items():
            poll.register(fd, events)
        return [fd for fd, _ in poll.poll(None if seconds is None else 1000 * seconds)]


def wait_readable(filenos: Iterable[int], seconds: float | None) -> list[int]:
    """Those descriptors that become readable in time; None: wait for one."""
    return ready(dict.fromkeys(filenos, READABLE), seconds)
