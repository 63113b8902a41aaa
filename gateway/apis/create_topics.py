"""CreateTopics (key 19), versions 2-7.

- Each topic is created, or gets an error code and a message. A repeated name is not created:
  INVALID_REQUEST, once and after the others.
- POLICY_VIOLATION in each row of a request that would make too many partitions, also for names that
  are repeated or denied.
- Names, counts, replicas and configs are checked as Kafka does, and configs are bounded
  (smq.coordinator.config_room). validate_only only checks.
- The answer goes out once the topic is in the catalog. The timeout has no effect.
- From 4: -1 for the broker's number of partitions and of replicas (KIP-464).
- From 5: number of partitions, replication factor and every config in the answer (KIP-525).
- From 6: THROTTLING_QUOTA_EXCEEDED while the client has made too many partitions (KIP-599).
- From 7: topic id (KIP-516).

Left out: replication factors above 1 (smq.coordinator.topics says why).
"""

from collections import Counter
from collections.abc import Iterator

from gateway.apis.configs.entries import Layers
from gateway.apis.configs.parts import parts_of
from gateway.apis.configs.topics import topic_entries
from gateway.coordinator_context import CoordinatorContext
from smq.coordinator.mutations import Charge
from smq.coordinator.topics import PARTITIONS_PER_REQUEST_MAX, NewTopic
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import Operation, ResourceType
from smq.security.rights import Rights, refusal
from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

REPLICATION_FACTOR = 1
STRICT_FROM = 6
PART_NAMES = 200  # Per step: a right takes some ten microseconds, with ten thousand rules.


def handle(
    request: CreateTopicsRequest, context: CoordinatorContext
) -> Iterator[CreateTopicsResponse]:
    """Create each topic or refuse it; answers in parts."""
    counts = Counter(each.name for each in request.topics)
    once = [each for each in request.topics if counts[each.name] == 1]
    denied: list[str] = []
    for some in _denied(once, context.rights):
        denied += some
        yield CreateTopicsResponse()
    if denied:
        is_denied = set(denied)
        once = [each for each in once if each.name not in is_denied]
    if sum(_partition_count(each, context) for each in once) > PARTITIONS_PER_REQUEST_MAX:
        sentence = "Excessively large number of partitions per request."
        why = BrokerError(ErrorCode.POLICY_VIOLATION, sentence)
        yield from _refused_in_parts([(each.name, why) for each in request.topics])
        return
    twice = BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    refused = [(name, twice) for name, count in counts.items() if count > 1]
    refused += [(name, refusal(ResourceType.TOPIC)) for name in denied]
    charge = context.charge(STRICT_FROM)
    for part in parts_of(once, _characters):
        made = [_create(each, request, context, charge) for each in part]
        yield CreateTopicsResponse(topics=made, throttle_time_ms=charge.throttle_ms)
    yield from _refused_in_parts(refused, charge.throttle_ms)


def _refused_in_parts(
    refused: list[tuple[str, BrokerError]], throttle_ms: int = 0
) -> Iterator[CreateTopicsResponse]:
    """A row for each of these names."""
    for first in range(0, len(refused), PART_NAMES):
        rows = [_refused(*each) for each in refused[first : first + PART_NAMES]]
        yield CreateTopicsResponse(topics=rows, throttle_time_ms=throttle_ms)


def _denied(topics: list[CreatableTopic], rights: Rights) -> Iterator[list[str]]:
    """The names of those that may not be created, in portions."""
    if rights.cluster(Operation.CREATE):
        return
    for first in range(0, len(topics), PART_NAMES):
        names = [each.name for each in topics[first : first + PART_NAMES]]
        yield [name for name in names if not rights.asks_topic(Operation.CREATE, name)]


def _characters(topic: CreatableTopic) -> int:
    return sum(len(each.value or "") for each in topic.configs)


def _partition_count(wanted: CreatableTopic, context: CoordinatorContext) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    if wanted.num_partitions < 0:
        return context.coordinator.config.num_partitions
    return wanted.num_partitions


def _create(
    wanted: CreatableTopic,
    request: CreateTopicsRequest,
    context: CoordinatorContext,
    charge: Charge,
) -> CreatableTopicResult:
    new = NewTopic(
        name=wanted.name,
        partition_count=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in wanted.assignments],
        configs={each.name: each.value for each in wanted.configs},
    )
    topics = context.coordinator.topics
    try:
        if charge.is_limited:
            topics.create(new, context.now, validate_only=True)
            charge.take(_partition_count(wanted, context))
        topic = topics.create(new, context.now, validate_only=request.validate_only)
    except BrokerError as why:
        return _refused(wanted.name, why)
    if not context.rights.topic(Operation.DESCRIBE_CONFIGS, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    given = {each.name: each.value or "" for each in wanted.configs}  # Kafka repeats these texts.
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=REPLICATION_FACTOR,
        configs=[
            CreatableTopicConfigs(
                name=entry.name, value=entry.value, config_source=entry.config_source
            )
            for entry in topic_entries(given, Layers.of(context))
        ],
    )


def _refused(name: str, why: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=why.code, error_message=why.message)
