"""The handshake on the attach socket: one hello, one answer, then the session begins.

Both are structs of fixed size, little endian: both sides are on one machine. The answer carries
descriptors: the session's memory, the cluster block, the catalog, then the shard's logs, each of
which names itself. After that the socket carries bells, single bytes, and closing it ends the
session.
"""

import struct
from typing import NamedTuple, Self

from smq.model.errors import PeerError

VERSION = 2  # The head of the catalog tells settings.
MAGIC = b"SMQ!"
DESCRIPTORS_BEFORE_LOGS = 3
LOGS_MAX = 250  # A message carries at most 253 descriptors.
REFUSAL_BYTES_MAX = 200
OPEN_SUFFIX = ".open"
"""Of the directory, beside the cluster's own, whose sockets all users of this host may reach."""

_HELLO = struct.Struct("<4sHH64s")  # Magic, version, node, cluster id.
_ANSWER = struct.Struct(f"<4sHH{REFUSAL_BYTES_MAX}s")  # Magic, version, descriptors, refusal.
HELLO_BYTES, ANSWER_BYTES = _HELLO.size, _ANSWER.size


class Hello(NamedTuple):
    """The client's message: the broker and node that it expects."""

    node_id: int
    cluster_id: str

    def encode(self) -> bytes:
        return _HELLO.pack(MAGIC, VERSION, self.node_id, self.cluster_id.encode())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises PeerError."""
        _check(data, HELLO_BYTES)
        _, _, node_id, cluster_id = _HELLO.unpack(data)
        return cls(node_id, cluster_id.rstrip(b"\0").decode(errors="replace"))


class AttachReply(NamedTuple):
    """The shard's message: how many descriptors come with it, or why it refuses."""

    descriptors: int
    refusal: str = ""

    def encode(self) -> bytes:
        refusal = self.refusal.encode()[:REFUSAL_BYTES_MAX]
        return _ANSWER.pack(MAGIC, VERSION, self.descriptors, refusal)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises PeerError."""
        _check(data, ANSWER_BYTES)
        _, _, descriptors, refusal = _ANSWER.unpack(data)
        return cls(descriptors, refusal.rstrip(b"\0").decode(errors="replace"))


def _check(data: bytes, size: int) -> None:
    if len(data) != size or data[:4] != MAGIC:
        raise PeerError("not an attach handshake")
    version = int.from_bytes(data[4:6], "little")
    if version != VERSION:
        raise PeerError(f"the other side speaks attach version {version}, this one {VERSION}")
