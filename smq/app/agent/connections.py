"""Ends the connection of a client that takes no answer: gRPC keeps all of it meanwhile, and its
servers for asyncio have no way to end a call whose answer is written.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from smq.security.addresses import written

DESCRIPTORS = Path("/proc/self/fd")


def address_of(peer: str) -> tuple[str, int] | None:
    """Host and port in what gRPC calls a peer, the host as rules name it; None: it has none."""
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind not in {"ipv4", "ipv6"} or not port.isdecimal():
        return None
    return written(host.strip("[]")), int(port)


def end_connection(peer: str) -> bool:
    """End our connection with a peer, and all calls on it; whether there is one. In a thread: it
    looks at each descriptor of this process."""
    wanted = address_of(peer)
    if wanted is None:
        return False
    return any(_is_ended(int(each.name), wanted) for each in DESCRIPTORS.iterdir())


def _is_ended(fd: int, wanted: tuple[str, int]) -> bool:
    """End a connection if a descriptor is one with this peer; whether it is."""
    try:
        own = os.dup(fd)  # What we look at is what we end, whatever becomes of `fd`.
    except OSError:
        return False
    try:
        found = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return False
    with found, suppress(OSError):
        if found.family in {socket.AF_INET, socket.AF_INET6}:
            host, port = found.getpeername()[:2]
            if (written(host), port) == wanted:
                found.shutdown(socket.SHUT_RDWR)  # gRPC sees its end, and closes it.
                return True
    return False
