"""Frames between our own processes, over unix sockets. Performs no IO.

    0        4            12      13
    +--------+------------+-------+-----------------+
    | length | id         | kind  | body            |    little endian
    +--------+------------+-------+-----------------+
    length counts everything after itself. An answer carries the id and kind of its question.

KIND_KAFKA, a question to the coordinator: the body is `encode_relay(...)`, a Kafka request as a
client sent it with the connection's facts; the answer's body is the response (correlation id first,
no size), and an empty one means: close the client's connection. KIND_COMMAND: the body is a
question of `smq.wire.internal.messages`, or its answer, in the form of `smq.wire.internal.form`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from smq.model.errors import PeerError

KIND_KAFKA = 1
KIND_COMMAND = 2
FRAME_BYTES_MAX = 128 * 1024 * 1024  # A Kafka request is at most 100 MiB.

_HEAD = struct.Struct("<IQB")
_RELAY = struct.Struct("<iB")


class InternalFrame(NamedTuple):
    """One question or answer."""

    id: int
    kind: int
    body: bytes


class Relayed(NamedTuple):
    """A client's request on its way to the coordinator."""

    node_id: int
    client_host: str
    request: memoryview


def encode_frame(frame_id: int, kind: int, body: bytes) -> bytes:
    """The bytes of one frame."""
    return _HEAD.pack(9 + len(body), frame_id, kind) + body


def encode_relay(node_id: int, client_host: str, request: bytes | memoryview) -> bytes:
    """The body of a KIND_KAFKA question: the client, then the request without its size."""
    host = client_host.encode()
    return _RELAY.pack(node_id, len(host)) + host + bytes(request)


def decode_relay(body: bytes) -> Relayed:
    """The parts of a KIND_KAFKA question."""
    node_id, host_bytes = _RELAY.unpack_from(body)
    start = _RELAY.size + host_bytes
    return Relayed(node_id, body[_RELAY.size : start].decode(), memoryview(body)[start:])


class InternalReader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def receive(self, data: bytes | memoryview) -> Iterator[InternalFrame]:
        """Add received bytes; yield each frame that is now complete. Raises PeerError."""
        self._received += data
        while len(self._received) >= _HEAD.size:
            length, frame_id, kind = _HEAD.unpack_from(self._received)
            if not 9 <= length <= FRAME_BYTES_MAX:
                raise PeerError(f"an internal frame of {length} bytes")
            if len(self._received) < 4 + length:
                return
            body = bytes(self._received[_HEAD.size : 4 + length])
            del self._received[: 4 + length]
            yield InternalFrame(frame_id, kind, body)
