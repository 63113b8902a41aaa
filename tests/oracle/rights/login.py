"""SASL/PLAIN on a new connection, by bytes that a broker cannot misunderstand."""

import socket
import struct

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


def password(user: str) -> str:
    return f"{user}-secret"


def log_in(connection: socket.socket, user: str) -> None:
    """Log in, or fail with what was answered."""
    mechanism = b"PLAIN"
    handshake = struct.pack(">h", len(mechanism)) + mechanism
    answer = _ask(connection, _SASL_HANDSHAKE, handshake)
    assert answer[:2] == b"\0\0", f"the handshake is refused: {answer!r}"
    token = f"\0{user}\0{password(user)}".encode()
    answer = _ask(connection, _SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)
    assert answer[:2] == b"\0\0", f"{user} is refused: {answer!r}"


def _ask(connection: socket.socket, key: int, body: bytes) -> bytes:
    """The answer to version 1 of this API, without its header."""
    frame = struct.pack(">hhih", key, 1, 0, -1) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    with connection.makefile("rb") as received:
        (size,) = struct.unpack(">i", received.read(4))
        return received.read(size)[4:]
