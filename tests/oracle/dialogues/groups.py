"""Groups seen from outside: their offsets, descriptions and ends; and who coordinates them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from smq.wire.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from smq.wire.generated.describe_groups import DescribeGroupsRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.membership import QUIET_JOIN, Member, enter, heartbeat, join, leave
from tests.oracle.dialogues.produce import UNKNOWN_ID
from tests.oracle.plain import own
from tests.oracle.talk import Talk

COMMIT_NEEDS_ID = FETCH_NEEDS_ID = 10


def commit(
    talk: Talk, group: str, topic: str, *offsets: tuple[int, int], **fields: Any
) -> OffsetCommitRequest:
    """Offsets as (partition, offset); fields of the request or its partitions may be given."""
    of_partition = {
        name: fields.pop(name)
        for name in ("committed_metadata", "committed_leader_epoch")
        if name in fields
    }
    partitions = [
        OffsetCommitRequestPartition(
            **{"committed_metadata": "", **of_partition},
            partition_index=partition,
            committed_offset=offset,
        )
        for partition, offset in offsets
    ]
    one = OffsetCommitRequestTopic(name=topic, partitions=partitions)
    if talk.version >= COMMIT_NEEDS_ID:
        one = OffsetCommitRequestTopic(topic_id=id_or_unknown(talk, topic))
        one.partitions = partitions
    return OffsetCommitRequest(group_id=group, topics=[one], **fields)


def id_or_unknown(talk: Talk, topic: str) -> UUID:
    known: UUID = talk.topic_id(topic)
    return known if known.int else UNKNOWN_ID


def as_member(member: Member) -> dict[str, Any]:
    return {"member_id": member.id, "generation_id_or_member_epoch": member.generation}


@dialogue("OffsetCommit", also=(5, 7, 9))
def commits(talk: Talk) -> None:
    topic, group = talk.make_topic(partitions=3), talk.own()
    talk.ask("from outside", commit(talk, group, topic, (0, 5), (2, 7)))
    talk.ask("back", commit(talk, group, topic, (0, 3)))
    talk.ask("beyond the end", commit(talk, group, topic, (0, 2**62)))
    talk.ask("offset -1", commit(talk, group, topic, (0, -1)))
    talk.ask("null metadata", commit(talk, group, topic, (0, 1), committed_metadata=None))
    long = {"committed_metadata": "m" * 4096}
    talk.ask("the longest metadata", commit(talk, group, topic, (0, 1), **long))
    longer = {"committed_metadata": "m" * 4097}
    talk.ask("longer metadata", commit(talk, group, topic, (0, 1), **longer))
    talk.ask("partition 9", commit(talk, group, topic, (9, 1), (0, 2)))
    some = [(index, 1) for index in (0, 9, 1, 8)]
    talk.ask("unknown ones between good ones", commit(talk, group, topic, *some))
    talk.ask("partition -1", commit(talk, group, topic, (-1, 1)))
    talk.ask("an unknown topic", commit(talk, group, talk.own("unknown"), (0, 1)))
    talk.ask("no topics", OffsetCommitRequest(group_id=group))
    talk.ask("no partitions", commit(talk, group, topic))
    talk.ask("no group", commit(talk, "", topic, (0, 1)))
    stranger = Member(group, "somebody", 1)
    talk.ask("a member of no group", commit(talk, group, topic, (0, 1), **as_member(stranger)))
    talk.ask(
        "a generation, no member",
        commit(talk, group, topic, (0, 1), **as_member(Member(group, "", 1))),
    )


@dialogue("OffsetCommit", also=(7,))
def commits_of_members(talk: Talk) -> None:
    topic, group = talk.make_topic(), talk.own()
    member = enter(talk, group)
    talk.ask("a member", commit(talk, group, topic, (0, 5), **as_member(member)))
    talk.ask("from outside", commit(talk, group, topic, (0, 6)))
    old = member._replace(generation=member.generation - 1)
    talk.ask("an old generation", commit(talk, group, topic, (0, 7), **as_member(old)))
    new = member._replace(generation=member.generation + 1)
    talk.ask("a generation to come", commit(talk, group, topic, (0, 7), **as_member(new)))
    stranger = member._replace(id="somebody")
    talk.ask("somebody", commit(talk, group, topic, (0, 7), **as_member(stranger)))
    if talk.version >= 7:
        name = {"group_instance_id": "me"}
        talk.ask("an unknown name", commit(talk, group, topic, (0, 7), **as_member(member), **name))
    leave(talk, member)
    talk.ask("who has left", commit(talk, group, topic, (0, 8), **as_member(member)))
    talk.ask("from outside, when all have left", commit(talk, group, topic, (0, 9)))


def fetch(
    talk: Talk, group: str, topics: dict[str, Sequence[int]] | None, **fields: Any
) -> OffsetFetchRequest:
    """What a group has committed in these partitions, or everywhere."""
    of_group = {name: fields.pop(name) for name in ("member_id", "member_epoch") if name in fields}
    asked = OffsetFetchRequestGroup(group_id=group, topics=fetched_topics(talk, topics), **of_group)
    return OffsetFetchRequest(groups=[asked], **fields)


def fetched_topics(
    talk: Talk, topics: dict[str, Sequence[int]] | None
) -> list[OffsetFetchRequestTopics] | None:
    if topics is None:
        return None
    found = []
    for name, partitions in topics.items():
        one = OffsetFetchRequestTopics(name=name, partition_indexes=list(partitions))
        if talk.version >= FETCH_NEEDS_ID:
            one = OffsetFetchRequestTopics(topic_id=id_or_unknown(talk, name))
            one.partition_indexes = list(partitions)
        found.append(one)
    return found


@dialogue("OffsetFetch", also=(2, 5, 7, 8, 9))
def committed(talk: Talk) -> None:
    topic, group = talk.make_topic(partitions=3), talk.own()
    talk.ask("of an unknown group", fetch(talk, group, {topic: [0, 1]}))
    if talk.version >= 2:
        talk.ask("everything of an unknown group", fetch(talk, group, None), trim=by_partition)
    epoch = {"committed_leader_epoch": 0}
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata="mine", **epoch
        ),
        OffsetCommitRequestPartition(
            partition_index=2, committed_offset=7, committed_metadata=None
        ),
    ]
    done = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    )
    talk.quietly(done, 9)
    talk.ask("of some partitions", fetch(talk, group, {topic: [2, 0, 1]}))
    talk.ask("of an unknown partition", fetch(talk, group, {topic: [0, 9, -1]}))
    talk.ask("of an unknown topic", fetch(talk, group, {talk.own("unknown"): [0]}))
    talk.ask("of no topics", fetch(talk, group, {}))
    talk.ask("of no partitions", fetch(talk, group, {topic: []}))
    talk.ask("of no group", fetch(talk, "", {topic: [0]}))
    if talk.version >= 2:
        talk.ask("everything", fetch(talk, group, None), trim=by_partition)
    if talk.version >= 7:
        stable = fetch(talk, group, {topic: [0]}, require_stable=True)
        talk.ask("what is stable", stable)


def by_partition(answer: Any) -> None:
    """Everything comes in the order of a hash table."""
    for holder in answer.groups or [answer]:
        for topic in holder.topics:
            topic.partitions = sorted(topic.partitions, key=lambda each: each.partition_index)


@dialogue("OffsetFetch", since=8, also=(9,))
def of_several_groups(talk: Talk) -> None:
    topic = talk.make_topic()
    groups = [
        OffsetFetchRequestGroup(group_id=talk.own(each), topics=fetched_topics(talk, {topic: [0]}))
        for each in ("b", "a", "c")
    ]
    talk.ask("three", OffsetFetchRequest(groups=groups))
    talk.ask("none", OffsetFetchRequest(groups=[]))
    if talk.version >= 9:
        member = enter(talk, talk.own())
        who = {"member_id": member.id, "member_epoch": member.generation}
        talk.ask("a member", fetch(talk, talk.own(), {topic: [0]}, **who))
        who["member_epoch"] = member.generation + 5
        talk.ask("a wrong generation", fetch(talk, talk.own(), {topic: [0]}, **who))
        stranger = {"member_id": "somebody", "member_epoch": 1}
        talk.ask("somebody", fetch(talk, talk.own(), {topic: [0]}, **stranger))


@dialogue("DescribeGroups", also=(3, 4))
def described(talk: Talk) -> None:
    def ask(step: str, *groups: str, **fields: Any) -> None:
        talk.ask(step, DescribeGroupsRequest(groups=list(groups), **fields))

    ask("an unknown one", talk.own())
    ask("none")
    member = enter(talk, talk.own())
    ask("a stable one", talk.own())
    ask("a known and an unknown one", talk.own("unknown"), talk.own())
    ask("one twice", talk.own(), talk.own())
    if talk.version >= 3:
        ask("what I may do", talk.own(), include_authorized_operations=True)
    leave(talk, member)
    ask("an empty one", talk.own())
    enter(talk, talk.own("static"), group_instance_id="me")
    ask("with a static member", talk.own("static"))


@dialogue("DescribeGroups")
def while_rebalancing(talk: Talk) -> None:
    """Members have the assignments of before until the leader gives others."""
    first = enter(talk, talk.own())
    talk.meet(first.id)
    asked = DescribeGroupsRequest(groups=[talk.own()])

    def in_order(answer: Any) -> None:
        [group] = answer.groups
        group.members = sorted(group.members, key=lambda each: each.member_id != first.id)

    second, third = talk.voice(), talk.quietly(join(talk.own()), QUIET_JOIN).member_id
    talk.meet(third)
    second.begin(join(talk.own(), third), version=QUIET_JOIN)
    talk.until(heartbeat(first), lambda answer: answer.error_code == 27, 3)
    talk.ask("while others join", asked, trim=in_order)
    talk.quietly(join(talk.own(), first.id), QUIET_JOIN)
    second.finish()
    talk.ask("before the leader syncs", asked, trim=in_order)


@dialogue("ListGroups", also=(4,))
def listed(talk: Talk) -> None:
    def mine(answer: ListGroupsResponse) -> None:
        answer.groups = own(answer.groups, "group_id", talk.own())

    def ask(step: str, **filters: Any) -> None:
        talk.ask(step, ListGroupsRequest(**filters), trim=mine)

    enter(talk, talk.own("stable"))
    leave(talk, enter(talk, talk.own("empty")))
    topic = talk.make_topic()
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    only_offsets = OffsetCommitRequest(
        group_id=talk.own("offsets"),
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    talk.quietly(only_offsets, 9)
    ask("all")
    if talk.version >= 4:
        ask("stable ones", states_filter=["Stable"])
        ask("stable or empty ones", states_filter=["Stable", "Empty"])
        ask("stable ones in small letters", states_filter=["stable"])
        ask("of a state that is none", states_filter=["Sleepy"])
    if talk.version >= 5:
        ask("classic ones", types_filter=["classic"])
        ask("consumer ones", types_filter=["consumer"])
        ask("of a type that is none", types_filter=["sleepy"])


def by_name(answer: DeleteGroupsResponse) -> None:
    answer.results = sorted(answer.results, key=lambda each: each.group_id)


@dialogue("DeleteGroups")
def deleted(talk: Talk) -> None:
    member = enter(talk, talk.own())
    talk.ask("a stable one", DeleteGroupsRequest(groups_names=[talk.own()]))
    leave(talk, member)
    talk.ask("an empty one", DeleteGroupsRequest(groups_names=[talk.own()]))
    talk.ask("once more", DeleteGroupsRequest(groups_names=[talk.own()]))
    several = [talk.own("b"), talk.own("a")]
    talk.ask("two that are not", DeleteGroupsRequest(groups_names=several), trim=by_name)
    talk.ask("none", DeleteGroupsRequest(groups_names=[]))


@dialogue("FindCoordinator", also=(1, 2, 4))
def coordinators(talk: Talk) -> None:
    def ask(step: str, *keys: str, key_type: int = 0) -> None:
        talk.ask(step, FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type))

    ask("of a group", "g")
    ask("of no group", "")
    if talk.version >= 4:
        ask("of two", "b", "a")
        ask("of one twice", "a", "a")
        ask("of none")
    if talk.version >= 1:
        ask("of a type that is none", "g", key_type=7)
        ask("of a negative type", "g", key_type=-1)
        ask("of a share group that has no partition", "g", key_type=2)
