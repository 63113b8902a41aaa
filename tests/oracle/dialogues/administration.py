"""ElectLeaders, ListPartitionReassignments, ACLs: what tools ask of a cluster."""

from collections.abc import Sequence
from typing import Any

from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest
from smq.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions as ElectedTopic
from smq.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk

PREFERRED, UNCLEAN = 0, 1


@dialogue("ElectLeaders", also=(1,))
def elections(talk: Talk) -> None:
    def ask(step: str, *asked: tuple[str, Sequence[int]], kind: int = PREFERRED) -> None:
        rows = [ElectedTopic(topic=name, partitions=partitions) for name, partitions in asked]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=10_000)
        talk.ask(step, request, trim=sort)

    def sort(answer: Any) -> None:
        answer.replica_election_results = sorted(
            answer.replica_election_results, key=lambda each: each.topic
        )

    topic = talk.make_topic(partitions=2)
    ask("the preferred one leads", (topic, [0, 1]))
    ask("a partition that is not there", (topic, [2]))
    ask("an unknown topic", (talk.own("unknown"), [0]))
    ask("no partitions", (topic, []))
    ask("no topics")
    if talk.version >= 1:
        ask("an unclean one", (topic, [0]), kind=UNCLEAN)
        ask("a kind that is none", (topic, [0]), kind=9)


@dialogue("ListPartitionReassignments")
def reassignments(talk: Talk) -> None:
    def ask(step: str, topics: list[ListPartitionReassignmentsTopics] | None) -> None:
        talk.ask(step, ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics))

    topic = talk.make_topic()
    ask("all", None)
    ask("none", [])
    ask("one", [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])])
    ask("unknown", [ListPartitionReassignmentsTopics(name=talk.own("no"), partition_indexes=[0])])
    ask("no such index", [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[9])])


TOPICS, LITERAL, ALICE, EVERY_HOST, READ, ALLOW = 2, 3, "User:alice", "*", 3, 3


@dialogue("DescribeAcls")
def without_authorizer(talk: Talk) -> None:
    every = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    talk.ask("all", every)


@dialogue("CreateAcls")
def not_created(talk: Talk) -> None:
    one = AclCreation(
        resource_type=TOPICS,
        resource_name=talk.own(),
        resource_pattern_type=LITERAL,
        principal=ALICE,
        host=EVERY_HOST,
        operation=READ,
        permission_type=ALLOW,
    )
    for count in range(3):
        talk.ask(f"{count} of them", CreateAclsRequest(creations=[one] * count))


@dialogue("DeleteAcls")
def not_deleted(talk: Talk) -> None:
    one = DeleteAclsFilter(
        resource_type_filter=TOPICS,
        resource_name_filter=talk.own(),
        operation=1,
        permission_type=1,
    )
    for count in range(3):
        talk.ask(f"{count} filters", DeleteAclsRequest(filters=[one] * count))
