"""DeleteTopics (key 20), versions 1-6.

- Deletes each topic with its records, configs and committed offsets. The other processes drop their
  state when they see the next catalog.
- UNKNOWN_TOPIC_OR_PARTITION: no such topic. INVALID_REQUEST: a repeated name or id; a topic that
  is named by both stays, and has one row.
- From 5: error messages, and THROTTLING_QUOTA_EXCEEDED while the client has deleted too many
  partitions (KIP-599). From 6: topics by id (KIP-516), an unknown one is
  UNKNOWN_TOPIC_ID; both a name and an id, or neither, is INVALID_REQUEST.
- Unlike Kafka, which shuffles, answers come in the order asked.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from uuid import UUID

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.mutations import Charge
from smq.coordinator.topics import INTERNAL_STAYS, Topics
from smq.model.catalog import Catalog, Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.wire.codec import ZERO_UUID
from smq.wire.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

STRICT_FROM = 5
PART_TOPICS = 50  # Per part of an answer: deleting one takes some tens of microseconds.


def handle(
    request: DeleteTopicsRequest, context: CoordinatorContext
) -> Iterator[DeleteTopicsResponse]:
    """Delete each topic or refuse; answers in parts."""
    counts = Counter((each.name, each.topic_id.bytes) for each in request.topics)
    # Look topics up in the former catalog: building a new one per topic would take too long.
    charge = context.charge(STRICT_FROM)
    deletion, names = _Deletion(context, charge), list(counts)
    for _ in deletion.find_twice(request.topics):
        yield DeleteTopicsResponse()
    for first in range(0, max(1, len(names)), PART_TOPICS):
        found = [
            deletion.find(DeleteTopicState(name=name, topic_id=UUID(bytes=key)), counts[name, key])
            for name, key in names[first : first + PART_TOPICS]
        ]
        deletion.carry_out(context.coordinator.topics)
        results = [each for each in found if each is not None]
        yield DeleteTopicsResponse(responses=results, throttle_time_ms=charge.throttle_ms)


class _Deletion:
    """The topics to delete, each once."""

    def __init__(self, context: CoordinatorContext, charge: Charge) -> None:
        self._catalog, self._charge = context.coordinator.topics.catalog, charge
        self._rights, self._may_all = context.rights, context.rights.cluster(Operation.DELETE)
        self._twice: set[str] = set()
        self._due: list[Topic] = []

    def find_twice(self, asked: Sequence[DeleteTopicState]) -> Iterator[None]:
        """Find the topics that are asked for by name and by id, where both may be deleted; in
        steps."""
        ids = [each.topic_id for each in asked if each.name is None]
        topics = map(self._catalog.find_by_id, ids)
        by_id = {topic.name for topic in topics if topic is not None}
        both = list(by_id & {each.name for each in asked})
        for first in range(0, len(both), PART_TOPICS):
            yield
            self._twice |= {
                name for name in both[first : first + PART_TOPICS] if self._may_delete(name)
            }

    def _may_delete(self, name: str) -> bool:
        rights = self._rights
        return self._may_all or (
            rights.topic(Operation.DELETE, name) and rights.topic(Operation.DESCRIBE, name)
        )

    def find(self, asked: DeleteTopicState, count: int) -> DeletableTopicResult | None:
        """Find one more topic; returns its row of the answer. None: that of its id stands for it,
        too."""
        if asked.name in self._twice:
            return None
        try:
            _check_clear(asked, count)
            self._check_name(asked)
            topic = _find(asked, self._catalog)
            self._check_deletes(topic.name)
            if topic.name in self._twice:
                sentence = "The provided topic name maps to an ID that was already supplied."
                return DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.id,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=sentence,
                )
            self._charge.take(topic.partition_count)
        except BrokerError as refusal:
            return DeletableTopicResult(
                name=self._told_name(asked),
                topic_id=asked.topic_id,
                error_code=refusal.code,
                error_message=refusal.message,
            )
        self._due.append(topic)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id)

    def _check_name(self, asked: DeleteTopicState) -> None:
        """Who may not know of a topic does not learn that there is none."""
        if asked.name is not None and not self._may_all:
            self._rights.check(Operation.DESCRIBE, ResourceType.TOPIC, asked.name)

    def _check_deletes(self, name: str) -> None:
        if not self._may_all:
            self._rights.check(Operation.DELETE, ResourceType.TOPIC, name)

    def _told_name(self, asked: DeleteTopicState) -> str | None:
        """The name in the row of a topic that stays: that of an id if the client may know it."""
        topic = self._catalog.find_by_id(asked.topic_id) if asked.name is None else None
        is_refused = topic is not None and not self._rights.is_unlimited and not self._may_all
        if topic is None or not is_refused or self._rights.topic(Operation.DELETE, topic.name):
            return asked.name
        return topic.name if self._rights.topic(Operation.DESCRIBE, topic.name) else None

    def carry_out(self, topics: Topics) -> None:
        """Delete the topics found; another request may have deleted some meanwhile."""
        due, self._due = self._due, []
        for topic in due:
            if topics.has(topic):
                topics.delete(topic)


def _check_clear(asked: DeleteTopicState, count: int) -> None:
    """Refuse what does not say clearly which topic is meant, whoever asks."""
    if asked.name is None and asked.topic_id == ZERO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if count > 1:
        raise _invalid(f"Duplicate topic {'name' if asked.name is not None else 'id'}.")


def _find(asked: DeleteTopicState, catalog: Catalog) -> Topic:
    if asked.name is not None:
        topic, error = catalog.find(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic, error = catalog.find_by_id(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None:
        raise BrokerError(error, _SENTENCES[error])
    if topic.is_internal:
        raise _invalid(INTERNAL_STAYS)
    return topic


_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}


def _invalid(sentence: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, sentence)
