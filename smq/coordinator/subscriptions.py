"""The topics that the members of a group subscribe to (ConsumerProtocolSubscription).

    version int16, topics (count int32, each a length int16 and UTF-8); the rest is not read

Only consumers send this. The coordinator reads it to delete offsets; otherwise members' metadata is
opaque to it.
"""

import struct

from smq.coordinator.group import Group
from smq.model.errors import PeerError
from smq.wire.codec import read_count, read_string

CONSUMER = "consumer"
VERSION_BYTES = 2


def topics_of(group: Group) -> frozenset[str] | None:
    """The topics that members of a consumer group read; None: unknown."""
    topics: set[str] = set()
    for member in group.roster:
        try:
            topics.update(_topics(member.metadata(group.protocol_name)))
        except (PeerError, struct.error):
            return None
    return frozenset(topics)


def _topics(said: bytes) -> list[str]:
    """Raises PeerError or struct.error when these bytes are no subscription."""
    count, at = read_count(said, VERSION_BYTES)
    topics = []
    for _ in range(count):
        topic, at = read_string(said, at)
        topics.append(topic)
    return topics
