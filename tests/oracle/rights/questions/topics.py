"""Topics: what is seen of them, who makes, changes and deletes them."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from smq.wire.codec import ZERO_UUID
from smq.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from tests.oracle.dialogues.topics import creation, topic
from tests.oracle.plain import own
from tests.oracle.rights import asked
from tests.oracle.rights.cell import EXISTING, MISSING, Cell

MAY_NOT_CREATE, OF_TOPICS, ID_ALONE = 4, 8, 12
OF_CLUSTER = range(8, 11)
REFUSED = 29
DELETE_HAS_IDS = 6
UNKNOWN = 3
METADATA, CREATE, DELETE = 9, 5, 5  # Versions of what is only needed before or afterwards.


def existing(cell: Cell, *words: str) -> list[str]:
    """Those topics that there are, as who makes topics knows it: who is asked for them may lag."""
    check = creation(*(topic(cell.own(each)) for each in words), validate_only=True)
    there = {each.name for each in cell.quietly(check, CREATE).topics if each.error_code}
    return [each for each in words if cell.own(each) in there]


def _shown(cell: Cell, words: Sequence[str], good: Callable[[Any], bool]) -> None:
    """Wait until who is asked for these topics knows what has become of them."""
    topics = [MetadataRequestTopic(name=cell.own(each)) for each in words]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    cell.until(request, lambda answer: all(good(each) for each in answer.topics), METADATA)


def delete_new(cell: Cell, words: Sequence[str]) -> None:
    """Delete what a step has made."""
    for each in words:
        cell.settle(cell.own(each))
    states = [DeleteTopicState(name=cell.own(each)) for each in words]
    cell.quietly(DeleteTopicsRequest(topics=states, timeout_ms=10_000), DELETE)
    _shown(cell, words, lambda each: bool(each.error_code == UNKNOWN))


def make_again(cell: Cell, words: Sequence[str]) -> None:
    """Make again what a step has deleted; it has another id then."""
    _shown(cell, words, lambda each: bool(each.error_code == UNKNOWN))
    answer = cell.quietly(creation(*(topic(cell.own(each)) for each in words)), CREATE)
    assert not any(each.error_code for each in answer.topics), answer
    for each in words:
        cell.settle(cell.own(each))
    cell.know_ids()


def metadata(names: Sequence[str] | None, *, create: bool = False, **how: Any) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=each) for each in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **how)


def topics_alone(answer: Any) -> None:
    """Everybody sees the brokers."""
    answer.brokers, answer.cluster_id, answer.controller_id = [], "", -1


@asked("Metadata", since=MAY_NOT_CREATE, also=(8, 10, 12))
def seen(cell: Cell) -> None:
    def mine(answer: Any) -> None:
        answer.topics = own(answer.topics, "name", cell.own())
        topics_alone(answer)

    def ask(step: str, request: MetadataRequest) -> None:
        cell.ask(step, request, trim=topics_alone)

    ask("all names", metadata(cell.all()))
    cell.ask("everything", metadata(None), trim=mine)
    if cell.version >= OF_TOPICS:
        request = metadata(cell.all(), include_topic_authorized_operations=True)
        ask("with the topics' operations", request)
    if cell.version in OF_CLUSTER:
        request = metadata([], include_cluster_authorized_operations=True)
        ask("with the cluster's operations", request)
    if cell.version >= ID_ALONE:
        topics = [MetadataRequestTopic(topic_id=each, name=None) for each in cell.topic_ids()]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        ask("all ids", request)
        request.include_topic_authorized_operations = True
        ask("all ids, with operations", request)


@asked("Metadata", also=(1, 4))
def made_by_a_question(cell: Cell) -> None:
    """Before version 4 each question may create what it names, at once or a little later."""
    allowed: list[str] = []

    def trim(answer: Any) -> None:
        topics_alone(answer)
        for each in answer.topics:
            if each.error_code != REFUSED:
                allowed.append(each.name)
                each.error_code, each.topic_id, each.partitions = UNKNOWN, ZERO_UUID, []

    names = [cell.own(word) for word in MISSING]
    cell.ask("auto-creation", metadata(names, create=True), trim=trim)
    words = [word for word in MISSING if cell.own(word) in allowed]
    if words:
        delete_new(cell, words)
    cell.note("auto-creation: made, of those that are not refused", words)
    assert not existing(cell, *MISSING)


@asked("DescribeTopicPartitions")
def described(cell: Cell) -> None:
    topics = [TopicRequest(name=each) for each in cell.all()]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=100)
    cell.ask("all", request)
    request.cursor = Cursor(topic_name=cell.own("denied"), partition_index=0)
    cell.ask("from denied on", request)


def few_configs(answer: Any) -> None:
    for each in answer.topics:
        each.configs = each.configs and [e for e in each.configs if e.name == "retention.bytes"]


@asked("CreateTopics")
def created(cell: Cell) -> None:
    topics = [topic(each) for each in cell.all()]
    cell.ask("a check", creation(*topics, validate_only=True), trim=few_configs)
    twice = [topic(cell.own(word)) for word in (MISSING[0], *MISSING)]
    for step, made in (("all", topics), ("new twice", twice)):
        cell.ask(step, creation(*made), trim=few_configs)
        there = existing(cell, *MISSING)
        cell.note(f"{step}: created", there)
        if there:
            delete_new(cell, there)


@asked("DeleteTopics", also=(5,))
def deleted(cell: Cell) -> None:
    def delete(step: str, states: list[DeleteTopicState]) -> None:
        cell.ask(step, DeleteTopicsRequest(topics=states, timeout_ms=10_000))
        there = existing(cell, *EXISTING)
        gone = [word for word in EXISTING if word not in there]
        cell.note(f"{step}: deleted", gone)
        if gone:
            make_again(cell, gone)

    delete("all names", [DeleteTopicState(name=each) for each in cell.all()])
    for word in EXISTING:
        delete(f"{word} twice", [DeleteTopicState(name=cell.own(word))] * 2)
    if cell.version >= DELETE_HAS_IDS:
        delete("all ids", [_by_id(each) for each in cell.topic_ids()])
        both = [DeleteTopicState(name=cell.own("allowed")), _by_id(cell.ids["allowed"])]
        delete("allowed by name and by id", both)


def _by_id(topic_id: UUID) -> DeleteTopicState:
    return DeleteTopicState(name=None, topic_id=topic_id)


@asked("CreatePartitions")
def more_partitions(cell: Cell) -> None:
    count = 2 + cell.turn
    topics = [CreatePartitionsTopic(name=e, count=count, assignments=None) for e in cell.all()]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=True)
    cell.ask("a check", request)
    request.validate_only = False
    cell.ask("all", request)
    twice = CreatePartitionsRequest(topics=[topics[0]] * 2, timeout_ms=10_000)
    cell.ask("allowed twice", twice)
