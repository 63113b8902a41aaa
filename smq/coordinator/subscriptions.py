"""The topics that the members of a group subscribe to (ConsumerProtocolSubscription).

    version int16, topics (count int32, each a length int16 and UTF-8); the rest is not read

Only consumers send this. The coordinator reads it to delete offsets; otherwise members' metadata is
opaque to it. Most members of a group have the same subscription, which is parsed once. Of different
ones at most TOPICS_MAX topics are parsed: beyond that the group keeps all its offsets.
"""

import struct

from smq.coordinator.group import Group
from smq.model.errors import PeerError
from smq.wire.codec import read_count, read_string

VERSION_BYTES = 2
TOPICS_MAX = 10_000  # Some milliseconds.
SAID_MAX = 8


def topics_of(group: Group) -> frozenset[str] | None:
    """The topics that members of a consumer group read; None: unknown, or too many to look at."""
    topics: set[str] = set()
    already, left = tuple[bytes, ...](), TOPICS_MAX
    for member in group.roster:
        said = member.metadata(group.protocol_name)
        if said.startswith(already):
            continue
        try:
            own, end = _topics(said, left)
        except (PeerError, struct.error):
            return None
        topics.update(own)
        left -= len(own)
        if len(already) < SAID_MAX:
            already += (said[:end],)
    return frozenset(topics)


def _topics(said: bytes, count_max: int) -> tuple[list[str], int]:
    """The topics, and where they end. Raises PeerError or struct.error when these bytes are no
    subscription, or one of more topics."""
    count, at = read_count(said, VERSION_BYTES)
    if count > count_max:
        raise PeerError(f"a subscription of {count} topics")
    topics = []
    for _ in range(count):
        topic, at = read_string(said, at)
        topics.append(topic)
    return topics, at
