"""Frames between our own processes, over unix sockets. Performs no IO.

    0        4            12      13
    +--------+------------+-------+-----------------+
    | length | id         | kind  | body            |    little endian
    +--------+------------+-------+-----------------+
    length counts everything after itself. An answer carries the id and kind of its question.

Who has connected numbers its questions from 1, the other side from ACCEPTOR_IDS_FROM.

KIND_KAFKA, a question to the coordinator: the body is `encode_relay(...)`, a Kafka request as a
client sent it with the connection's facts; the answer's body is the response (correlation id first,
no size), and an empty one means: close the client's connection. It is taken only from processes
that hold the supervisor's socket for it, since it says whose request it is. KIND_COMMAND: the body
is a question of `smq.wire.internal.messages`, or its answer, in the form of
`smq.wire.internal.form`.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from smq.model.errors import PeerError

KIND_KAFKA = 1
KIND_COMMAND = 2
ACCEPTOR_IDS_FROM = 1 << 63
FRAME_BYTES_MAX = 128 * 1024 * 1024  # A Kafka request is at most 100 MiB.
LARGE_BYTES = 1024 * 1024  # Bodies from this size on are not copied as a whole.
PIECE_BYTES_MIN = 1 << 16  # Of the pieces of a large frame but the last one, about.
FIRST_BYTES_MIN = 64  # Of the first piece: a response's header, and more.

_HEAD = struct.Struct("<IQB")
_RELAY = struct.Struct("<iIHH")


class InternalFrame(NamedTuple):
    """One question or answer. The body of a large one has come in pieces."""

    id: int
    kind: int
    first: bytes
    rest: tuple[bytes, ...] = ()

    @property
    def body(self) -> bytes:
        """The whole body; that of a large frame is joined each time."""
        return b"".join((self.first, *self.rest)) if self.rest else self.first


class WrittenPeer(NamedTuple):
    """Who has sent a request: the principal as it is written, its address, the listener."""

    principal: str
    host: str
    listener: str


class Relayed(NamedTuple):
    """A client's request on its way to the coordinator."""

    node_id: int
    asker: WrittenPeer
    request: memoryview


def encode_frame(frame_id: int, kind: int, body: bytes) -> bytes:
    """The bytes of one frame."""
    return _HEAD.pack(9 + len(body), frame_id, kind) + body


def frame_pieces(frame_id: int, kind: int, body: Sequence[bytes]) -> list[bytes]:
    """The bytes of one frame in pieces, as its body is given: a large one is not copied."""
    size = sum(map(len, body))
    head = _HEAD.pack(9 + size, frame_id, kind)
    return [head, *body] if size >= LARGE_BYTES else [b"".join((head, *body))]


def encode_relay(node_id: int, asker: WrittenPeer, request: bytes | memoryview) -> bytes:
    """The body of a KIND_KAFKA question: who asks, then the request without its size."""
    names = [name.encode() for name in asker]
    return b"".join((_RELAY.pack(node_id, *map(len, names)), *names, request))


def decode_relay(body: bytes) -> Relayed:
    """The parts of a KIND_KAFKA question."""
    node_id, *sizes = _RELAY.unpack_from(body)
    ends = list(accumulate(sizes, initial=_RELAY.size))
    names = (body[start:end].decode() for start, end in pairwise(ends))
    return Relayed(node_id, WrittenPeer(*names), memoryview(body)[ends[-1] :])


class InternalReader:
    """Cuts a byte stream into frames. Large ones keep the pieces in which they have come."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._head = (0, 0)  # Id and kind of a large frame of which `_missing` bytes are to come.
        self._pieces: list[bytes] = []
        self._missing = 0

    def receive(self, data: bytes | memoryview) -> Iterator[InternalFrame]:
        """Add received bytes; yield each frame that is now complete. Raises PeerError."""
        if self._missing:
            piece, data = bytes(data[: self._missing]), data[self._missing :]
            if len(self._pieces[-1]) < PIECE_BYTES_MIN:
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)
            self._missing -= len(piece)
            if not self._missing:
                first, *rest = self._pieces
                self._pieces = []
                yield InternalFrame(*self._head, first, tuple(rest))
        self._received += data
        while len(self._received) >= _HEAD.size:
            length, frame_id, kind = _HEAD.unpack_from(self._received)
            if not 9 <= length <= FRAME_BYTES_MAX:
                raise PeerError(f"an internal frame of {length} bytes")
            missing = 4 + length - len(self._received)
            if missing > 0 and not self._is_begun(length):
                return
            with memoryview(self._received) as received:
                body = bytes(received[_HEAD.size : 4 + length])
            del self._received[: 4 + length]
            if missing <= 0:
                yield InternalFrame(frame_id, kind, body)
            else:
                self._head, self._pieces, self._missing = (frame_id, kind), [body], missing

    def _is_begun(self, length: int) -> bool:
        """Whether this is the begin of a large frame, with a first piece."""
        return length >= LARGE_BYTES and len(self._received) >= _HEAD.size + FIRST_BYTES_MIN
