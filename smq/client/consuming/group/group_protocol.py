"""The consumer protocol: what members of a group send each other in JoinGroup and SyncGroup.

    subscription = version, topics, user data, [from 1: owned], [2: generation], [3: rack]
    assignment   = version, [topic, partitions], user data

The broker does not read these. Newer versions append fields, which are ignored.
"""

from collections.abc import Iterable
from struct import Struct, error as struct_error

from smq.client.consuming.group.assignors import Member
from smq.client.names import TopicPartition, by_topic
from smq.model.errors import PeerError

VERSION = 2  # The first with the generation of owned partitions.
OWNED_FROM = 1
GENERATION_FROM = 2

_INT16, _INT32 = Struct(">h"), Struct(">i")


def write_subscription(member: Member) -> bytes:
    """Encode a member's subscription."""
    topics = sorted(member.topics)
    return b"".join(
        [
            _INT16.pack(VERSION),
            _INT32.pack(len(topics)),
            *map(_string, topics),
            _INT32.pack(-1),
            _partitions(member.owned),
            _INT32.pack(member.generation),
        ]
    )


def read_subscription(data: bytes) -> Member:
    """Decode a member's subscription. Raises PeerError."""
    reader = _Reader(data)
    version = reader.int16()
    topics = frozenset(reader.string() for _ in range(reader.count()))
    reader.skip_bytes()
    owned = reader.partitions() if version >= OWNED_FROM else frozenset()
    generation = reader.int32() if version >= GENERATION_FROM else -1
    return Member(topics, owned, generation)


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the partitions of a member."""
    return _INT16.pack(0) + _partitions(partitions) + _INT32.pack(-1)


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decode the partitions of a member; none if there are no bytes. Raises PeerError."""
    if not data:
        return frozenset()
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _partitions(names: Iterable[TopicPartition]) -> bytes:
    topics = by_topic(sorted(names))
    parts = [_INT32.pack(len(topics))]
    for topic, partitions in topics.items():
        parts += [_string(topic), _INT32.pack(len(partitions)), *map(_INT32.pack, partitions)]
    return b"".join(parts)


class _Reader:
    """Reads one field after the other. Raises PeerError if the bytes end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def _number(self, kind: Struct) -> int:
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except struct_error as error:
            raise PeerError(f"a member's bytes are cut: {error}") from error
        self._at += kind.size
        return int(value)

    def count(self) -> int:
        """The count of entries that take at least two bytes each."""
        count = self.int32()
        if not 0 <= 2 * count <= len(self._data) - self._at:
            raise PeerError(f"{count} entries where {len(self._data) - self._at} bytes are left")
        return count

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise PeerError(f"{length} bytes where {len(self._data) - self._at} are left")
        self._at += length
        return self._data[self._at - length : self._at]

    def string(self) -> str:
        try:
            return self._take(self.int16()).decode()
        except UnicodeDecodeError as error:
            raise PeerError(f"a topic's name is not UTF-8: {error}") from error

    def skip_bytes(self) -> None:
        self._take(max(0, self.int32()))

    def partitions(self) -> frozenset[TopicPartition]:
        found = set()
        for _ in range(self.count()):
            topic = self.string()
            found |= {TopicPartition(topic, self.int32()) for _ in range(self.count())}
        return frozenset(found)
