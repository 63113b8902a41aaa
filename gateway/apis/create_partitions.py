"""CreatePartitions (key 37), versions 0-3.

- The count is the new total. Existing partitions keep their records and nodes.
- Errors: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS if the count is no increase;
  INVALID_REQUEST, once and before the others, for a repeated name.
- A request may assign each new partition to a node. validate_only only checks.
- The answer goes out once the partitions are in the catalog; the timeout has no effect.
- From 3: THROTTLING_QUOTA_EXCEEDED while the client has made too many partitions (KIP-599).
"""

from collections import Counter
from collections.abc import Iterator

from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.topics import PARTITIONS_PER_REQUEST_MAX
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation
from smq.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_FROM = 3
PART_TOPICS = 10  # Per part of an answer: each change rewrites the topic's line in the catalog.


def handle(
    request: CreatePartitionsRequest, context: CoordinatorContext
) -> Iterator[CreatePartitionsResponse]:
    """Add partitions to each topic or refuse; answers in parts."""
    counts = Counter(each.name for each in request.topics)
    twice = [
        CreatePartitionsTopicResult(
            name=name,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="Duplicate topic name.",
        )
        for name, count in counts.items()
        if count > 1
    ]
    yield CreatePartitionsResponse(results=twice)
    once = [each for each in request.topics if counts[each.name] == 1]
    change = _Change(request, context)
    for first in range(0, len(once), PART_TOPICS):
        results = [change.carry_out(each) for each in once[first : first + PART_TOPICS]]
        yield CreatePartitionsResponse(results=results, throttle_time_ms=change.charge.throttle_ms)


class _Change:
    """The changes of a request, which adds PARTITIONS_PER_REQUEST_MAX partitions at most."""

    def __init__(self, request: CreatePartitionsRequest, context: CoordinatorContext) -> None:
        self._topics, self._rights = context.coordinator.topics, context.rights
        self._validate_only, self._now = request.validate_only, context.now
        self._left = PARTITIONS_PER_REQUEST_MAX
        self.charge = context.charge(STRICT_FROM)

    def carry_out(self, asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        """Change one topic or refuse it."""
        result = CreatePartitionsTopicResult(name=asked.name)
        assignments = asked.assignments
        try:
            self._check_rights(asked.name)
            topic = self._topics.find(asked.name)
            more = asked.count - topic.partition_count
            self._check_room(more)
            self.charge.take(max(0, more))
            self._topics.add_partitions(
                topic,
                asked.count,
                None if assignments is None else [each.broker_ids for each in assignments],
                now=self._now,
                validate_only=self._validate_only,
            )
            self._left -= more
        except BrokerError as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        return result

    def _check_rights(self, name: str) -> None:
        if not self._rights.asks_topic(Operation.ALTER, name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _check_room(self, more: int) -> None:
        if more > self._left:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
