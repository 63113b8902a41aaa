"""What is said on the attach socket before a session begins: one hello, one answer.

Both are structs of fixed size, little endian, for both sides are on one machine. The answer comes
with descriptors: the session's memory, the cluster block, the catalog, then the logs the shard
serves, each of which says itself which one it is. After that the socket carries single bytes, the
doorbells, and its closing ends the session.
"""

import struct
from typing import NamedTuple, Self

from smq.model.errors import PeerError

VERSION = 1
MAGIC = b"SMQ!"
DESCRIPTORS_BEFORE_LOGS = 3
LOGS_MAX = 250  # A message carries 253 descriptors.
REFUSAL_BYTES_MAX = 200

_HELLO = struct.Struct("<4sHH64s")  # Magic, version, node, cluster id.
_ANSWER = struct.Struct(f"<4sHH{REFUSAL_BYTES_MAX}s")  # Magic, version, descriptors, refusal.
HELLO_BYTES, ANSWER_BYTES = _HELLO.size, _ANSWER.size


class Hello(NamedTuple):
    """The client: which broker and node it believes to have found."""

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


class Answer(NamedTuple):
    """The shard: so many descriptors come with this, or why there are none."""

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
        raise PeerError("this is no talk about attaching")
    version = int.from_bytes(data[4:6], "little")
    if version != VERSION:
        raise PeerError(f"the other side attaches in version {version}, we do in {VERSION}")
