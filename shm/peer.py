"""Who is at the other end of a unix socket: the process and the user, as the kernel knows them."""

import os
import socket
import struct
from typing import NamedTuple

ROOT = 0
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid: struct ucred of unix(7)


class PeerIdentity(NamedTuple):
    """The process and the user that connected, or that listen."""

    pid: int
    uid: int

    @property
    def is_ours(self) -> bool:
        """Whether it is this user's, or root's."""
        return self.uid in {ROOT, os.getuid()}


def peer_of(sock: socket.socket) -> PeerIdentity:
    """The other end of a connected unix socket. Raises OSError."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return PeerIdentity(pid, uid)


def is_ours(sock: socket.socket) -> bool:
    """Whether the other end is this user's, or root's."""
    return peer_of(sock).is_ours


def check_ours(sock: socket.socket, also: int | None = None) -> None:
    """Raises PermissionError if the other end is neither ours, nor root's, nor this user's."""
    peer = peer_of(sock)
    if not (peer.is_ours or peer.uid == also):
        raise PermissionError(f"this socket belongs to user {peer.uid}")
