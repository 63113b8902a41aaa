"""Metadata (key 3), versions 0-13.

- Null topics (or, in version 0, an empty list) mean all; an empty list from 1 on means none.
- A topic that is not there: UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID when asked by id; an
  impossible name: INVALID_TOPIC_EXCEPTION. If the client allows it (before 4 it always does) and
  the broker is configured so, the coordinator creates what is missing and answers.
- A topic named twice is answered once; an unknown one once within a portion.
- Leader and only replica of a partition is the node of its log; its epoch is that node's
  generation, the same from every node.
- Ids from 10 (KIP-516); by id from 12, before that an id, or no name, is INVALID_REQUEST, and then
  nothing else is answered. Neither name nor id: UNKNOWN_SERVER_ERROR, likewise.
- Authorized operations (8; of the cluster until 10), INT32_MIN if not asked for.
- A topic that the client may not describe, or not create if it is missing and would be created, is
  TOPIC_AUTHORIZATION_FAILED; one that is asked for by id has no name then. Of all topics those are
  told that it may describe.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gateway.context import Relay, Result, ShardContext
from smq.model.catalog import Catalog, Leader, Node, Topic
from smq.model.errors import ErrorCode
from smq.model.names import is_valid_topic_name
from smq.security.acls import Operation, ResourceType
from smq.security.rights import Rights
from smq.wire.codec import ZERO_UUID
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_OPERATIONS_ASKED = -2147483648
BY_ID_FROM = 12
PART_ROWS = 500  # Per part: topics and partitions.
LIMITED_PART_ROWS = 100  # Likewise, where each topic's operations are decided one by one.
AUTO_CREATE_FLAG_FROM = 4
ALL_WHEN_EMPTY_UNTIL = 0


_Found = tuple[Topic | None, MetadataResponseTopic | None]  # One of both.


def controller_id(nodes: list[Node]) -> int:
    """The node to which clients send admin requests. Every node relays them: the first will do."""
    return nodes[0].id


def handle(request: MetadataRequest, context: ShardContext) -> Result:
    """Answer from the catalog, or relay if a topic must be created."""
    shard, version = context.shard, context.header.api_version
    may_create = creates(request, version) and shard.config.auto_create_topics_enable
    if may_create and names_to_create(request, shard.catalog, context.rights):
        return Relay()
    terms = AnswerTerms(version, context.rights, context.described, creates=may_create)
    return answer(request, shard.catalog, context.nodes, terms)


class AnswerTerms(NamedTuple):
    """What an answer depends on beside the catalog.

    described   the names that earlier portions have told, to which the answer adds its own
    creates     whether what is missing is created, where the client may
    """

    version: int
    rights: Rights
    described: dict[str, None]
    creates: bool

    @property
    def part_rows(self) -> int:
        """How many rows a part has, about."""
        return PART_ROWS if self.rights.is_unlimited else LIMITED_PART_ROWS


def creates(request: MetadataRequest, version: int) -> bool:
    """Whether the client wants missing topics to be created."""
    return version < AUTO_CREATE_FLAG_FROM or request.allow_auto_topic_creation


def names_to_create(request: MetadataRequest, catalog: Catalog, rights: Rights) -> list[str]:
    """The requested names that are valid, that no topic has and that the client may create."""
    return [
        topic.name
        for topic in request.topics or ()
        if topic.name is not None
        and catalog.find(topic.name) is None
        and is_valid_topic_name(topic.name)
        and rights.topic(Operation.DESCRIBE, topic.name)
        and _may_create(topic.name, rights)
    ]


def _may_create(name: str, rights: Rights) -> bool:
    return rights.cluster(Operation.CREATE) or rights.topic(Operation.CREATE, name)


def answer(
    request: MetadataRequest, catalog: Catalog, nodes: list[Node], terms: AnswerTerms
) -> Iterator[MetadataResponse]:
    """The response from the catalog, in parts, without the topics described before."""
    version, rights = terms.version, terms.rights
    wrong = _impossible(request, version)
    if wrong is not None:
        yield wrong
        return
    if request.topics is None or (version <= ALL_WHEN_EMPTY_UNTIL and not request.topics):
        some: Iterable[list[_Found]] = _visible(catalog, terms)
    else:
        once = {(asked.name, asked.topic_id.bytes): asked for asked in request.topics}
        found: list[_Found] = [
            (topic, refusal)
            for topic, refusal in (_find(asked, catalog, terms) for asked in once.values())
            if topic is None or _is_new(topic, terms.described)
        ]
        found.sort(key=_place_in_answer)
        some = [found]
    for topics in (part for those in some for part in _parts(those, nodes, terms.part_rows)):
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name is not None and topic.error_code not in _SAY_NO_OPERATIONS:
                    operations = rights.operations(ResourceType.TOPIC, topic.name)
                    topic.topic_authorized_operations = operations
        yield _response(request, topics, catalog, nodes, rights)


_SAY_NO_OPERATIONS = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID}


def _visible(catalog: Catalog, terms: AnswerTerms) -> Iterator[list[_Found]]:
    """The topics that a client may describe; those of a part are looked at in a step."""
    topics = list(catalog.all())
    for first in range(0, len(topics), terms.part_rows):
        part = topics[first : first + terms.part_rows]
        yield [(topic, None) for topic in part if _sees(topic, terms.rights)]


def _sees(topic: Topic, rights: Rights) -> bool:
    return rights.topic(Operation.DESCRIBE, topic.name)


def _place_in_answer(found: _Found) -> int:
    """Kafka names unknown ids first, then the topics that there are, then unknown names."""
    _, refused = found
    if refused is None:
        return 1
    return 0 if refused.topic_id != ZERO_UUID else 2


def _is_new(topic: Topic, described: dict[str, None]) -> bool:
    if topic.name in described:
        return False
    described[topic.name] = None
    return True


def _response(
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
    catalog: Catalog,
    nodes: list[Node],
    rights: Rights,
) -> MetadataResponse:
    asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in nodes
        ],
        cluster_id=catalog.cluster_id,
        controller_id=controller_id(nodes),
        topics=topics,
        cluster_authorized_operations=rights.cluster_operations() if asked else NO_OPERATIONS_ASKED,
    )


def _parts(
    found: Sequence[_Found], nodes: list[Node], part_rows: int
) -> Iterator[list[MetadataResponseTopic]]:
    """Rows for topics and their partitions, about so many at a time."""
    rows: list[MetadataResponseTopic] = []
    count = 0
    for topic, refusal in found:
        if topic is None:
            assert refusal is not None
            rows.append(refusal)
            count += 1
        else:
            for first in range(0, topic.partition_count, PART_ROWS):
                if first:
                    yield rows
                    rows, count = [], 0
                rows.append(_described(topic, nodes, first))
                count += 1 + min(topic.partition_count - first, PART_ROWS)
        if count >= part_rows:
            yield rows
            rows, count = [], 0
    yield rows


def _impossible(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """The answer to a request that names a topic in a way that its version does not allow."""
    topics = request.topics or ()
    if version < BY_ID_FROM:
        error = ErrorCode.INVALID_REQUEST
        is_wrong = any(asked.name is None or asked.topic_id != ZERO_UUID for asked in topics)
    else:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        is_wrong = any(asked.name is None and asked.topic_id == ZERO_UUID for asked in topics)
    if not is_wrong:
        return None
    return MetadataResponse(
        cluster_id=None,
        error_code=error if version > BY_ID_FROM else ErrorCode.NONE,
        topics=[
            MetadataResponseTopic(
                error_code=error,
                name=asked.name or "",
                topic_id=asked.topic_id,
            )
            for asked in topics
        ],
    )


def _find(asked: MetadataRequestTopic, catalog: Catalog, terms: AnswerTerms) -> _Found:
    rights = terms.rights
    if asked.topic_id != ZERO_UUID:
        topic = catalog.find_by_id(asked.topic_id)
        error, name = ErrorCode.UNKNOWN_TOPIC_ID, None
    else:
        name = asked.name or ""
        topic = catalog.find(name)
        valid = is_valid_topic_name(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic is not None and rights.asks_topic(Operation.DESCRIBE, topic.name):
        return topic, None
    if topic is not None or (name is not None and not _may_know(name, terms)):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None, MetadataResponseTopic(
        error_code=error, name=name, topic_id=asked.topic_id, partitions=[]
    )


def _may_know(name: str, terms: AnswerTerms) -> bool:
    """Whether a client learns that there is no topic of this name."""
    rights = terms.rights
    if not rights.asks_topic(Operation.DESCRIBE, name):
        return False
    if not terms.creates or not is_valid_topic_name(name) or rights.cluster(Operation.CREATE):
        return True
    return rights.asks_topic(Operation.CREATE, name)


def _described(topic: Topic, nodes: list[Node], first: int) -> MetadataResponseTopic:
    """A row with some of the topic's partitions, starting at one."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(index, topic.leader(index, nodes))
            for index in range(first, min(first + PART_ROWS, topic.partition_count))
        ],
    )


def _partition(index: int, leader: Leader) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader.node.id,
        leader_epoch=leader.epoch,
        replica_nodes=[leader.node.id],
        isr_nodes=[leader.node.id],
        offline_replicas=[],
    )
