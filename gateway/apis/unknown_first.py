"""The order of rows in answers about committed offsets: Kafka's.

Kafka checks whether partitions exist before it asks the group. If some do not, they stand at the
beginning: their topics before others, and within a topic the partitions; and a topic that the
request names twice is one row. All else keeps the request's order.
"""

from collections.abc import Iterable
from typing import Any

from smq.model.errors import ErrorCode
from smq.wire.codec import ZERO_UUID

_UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


def unknown_first(topics: Iterable[Any]) -> list[Any]:
    """These rows of a response, each with `name` and `partitions`, in Kafka's order."""
    rows = list(topics)
    if all(map(_is_known, rows)):
        return rows
    once: dict[object, Any] = {}
    for topic in rows:
        topic_id = getattr(topic, "topic_id", ZERO_UUID).bytes  # An id's own hash has no secret.
        first = once.setdefault((topic.name, topic_id), topic)
        if first is not topic:
            first.partitions = [*first.partitions, *topic.partitions]
    for topic in once.values():
        topic.partitions = sorted(topic.partitions, key=lambda row: row.error_code not in _UNKNOWN)
    return sorted(once.values(), key=_is_known)


def _is_known(topic: Any) -> bool:  # noqa: ANN401  (A topic's row of any of these APIs.)
    return all(row.error_code not in _UNKNOWN for row in topic.partitions)
