"""ElectLeaders (key 43), versions 0-2 (KIP-183, KIP-460).

A partition has one replica, which leads it: each named one gets ELECTION_NOT_NEEDED, as in Kafka
where the preferred replica leads; an unknown one UNKNOWN_TOPIC_OR_PARTITION. A request for all
partitions gets a row for each topic, without partitions: none had an election.
"""

from collections.abc import Callable, Iterator

from gateway.context import ShardContext
from smq.model.catalog import Catalog
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult as ElectedPartition,
    ReplicaElectionResult as TopicElection,
)

ELECTION_TYPES = {0, 1}  # Preferred, unclean.
PART_TOPICS = 1000  # Of an answer for all partitions: a few milliseconds.
Verdict = tuple[ErrorCode, str]


def handle(
    request: ElectLeadersRequest, context: ShardContext
) -> ElectLeadersResponse | Iterator[ElectLeadersResponse]:
    """Answer for each partition that no election is needed, or why there can be none."""
    catalog = context.shard.catalog
    if request.election_type not in ELECTION_TYPES:
        return _answer(
            request,
            lambda _name, _index: (ErrorCode.INVALID_REQUEST, "There is no such election type."),
            ErrorCode.INVALID_REQUEST,
        )
    if request.topic_partitions is None:
        return _all(catalog)

    def verdict(name: str, index: int) -> Verdict:
        topic = catalog.find(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."

    return _answer(request, verdict)


def refuse(request: ElectLeadersRequest, why: BrokerError) -> ElectLeadersResponse:
    """Refuse each partition."""
    return _answer(request, lambda _name, _index: (why.code, why.message or ""), why.code)


def _all(catalog: Catalog) -> Iterator[ElectLeadersResponse]:
    """A row for each topic, in parts; there is one at least, since internal topics always exist."""
    names = [topic.name for topic in catalog.all()]
    for first in range(0, len(names), PART_TOPICS):
        part = names[first : first + PART_TOPICS]
        rows = [TopicElection(topic=name, partition_result=[]) for name in part]
        yield ElectLeadersResponse(replica_election_results=rows)


def _answer(
    request: ElectLeadersRequest,
    verdict: Callable[[str, int], Verdict],
    error: ErrorCode = ErrorCode.NONE,
) -> ElectLeadersResponse:
    results = []
    for topic in request.topic_partitions or ():
        rows = []
        for index in topic.partitions:
            code, sentence = verdict(topic.topic, index)
            rows.append(
                ElectedPartition(partition_id=index, error_code=code, error_message=sentence)
            )
        results.append(TopicElection(topic=topic.topic, partition_result=rows))
    return ElectLeadersResponse(error_code=error, replica_election_results=results)
