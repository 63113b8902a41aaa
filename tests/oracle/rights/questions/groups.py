"""Groups: their members, their offsets, and what is said of them."""

from typing import Any

from smq.wire.generated.delete_groups import DeleteGroupsRequest
from smq.wire.generated.describe_groups import DescribeGroupsRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from smq.wire.generated.list_groups import ListGroupsRequest
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.oracle.dialogues.membership import (
    MEMBER_ID_REQUIRED,
    Member,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.oracle.plain import own
from tests.oracle.rights import asked
from tests.oracle.rights.cell import EXISTING, WORDS, Cell

COMMIT_NEEDS_ID = FETCH_NEEDS_ID = 10
SEVERAL_GROUPS, SEVERAL_KEYS, ALL_TOPICS, AUTHORIZED_OPERATIONS = 8, 4, 2, 3
COMMIT, FETCH, DESCRIBE = 9, 9, 6  # Versions of what is only needed beforehand or afterwards.
GROUPS, TRANSACTIONS, SHARE_GROUPS = range(3)
STARTED = 1000  # The offset of the commits beforehand.


def committing(cell: Cell, group: str, offset: int, *, by_id: bool) -> OffsetCommitRequest:
    """An offset of partition 0 of all topics, those that do not exist included."""
    place = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    if by_id:
        topics = [
            OffsetCommitRequestTopic(topic_id=each, partitions=[place]) for each in cell.topic_ids()
        ]
    else:
        topics = [OffsetCommitRequestTopic(name=each, partitions=[place]) for each in cell.all()]
    return OffsetCommitRequest(group_id=cell.own(group), topics=topics)


def begun(cell: Cell) -> None:
    """Make the groups that exist: each has offsets of both topics."""
    for word in EXISTING:
        cell.quietly(committing(cell, word, STARTED, by_id=False), COMMIT)


def committed(cell: Cell, group: str) -> dict[str, int]:
    """The offsets of a group, by the topic's word."""
    topics = [
        OffsetFetchRequestTopics(name=cell.own(each), partition_indexes=[0]) for each in EXISTING
    ]
    asked = OffsetFetchRequestGroup(group_id=cell.own(group), topics=topics)
    [answer] = cell.quietly(OffsetFetchRequest(groups=[asked]), FETCH).groups
    words = dict(zip(map(cell.own, EXISTING), EXISTING, strict=True))
    return {words[each.name]: each.partitions[0].committed_offset for each in answer.topics}


@asked("OffsetCommit", also=(9,), prepare=begun)
def commits(cell: Cell) -> None:
    offset = STARTED + 1 + cell.turn
    for word in EXISTING:
        request = committing(cell, word, offset, by_id=cell.version >= COMMIT_NEEDS_ID)
        cell.ask(f"the group {word}", request)
        now = committed(cell, word)
        cell.note(
            f"the group {word}: committed", [each for each in EXISTING if now[each] == offset]
        )


def fetching(cell: Cell, *groups: str, everything: bool = False) -> OffsetFetchRequest:
    if everything:
        topics = None
    elif cell.version >= FETCH_NEEDS_ID:
        topics = [
            OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0])
            for each in cell.topic_ids()
        ]
    else:
        topics = [OffsetFetchRequestTopics(name=e, partition_indexes=[0]) for e in cell.all()]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=cell.own(e), topics=topics) for e in groups]
    )


@asked("OffsetFetch", also=(2, 8, 9), prepare=begun)
def fetches(cell: Cell) -> None:
    for word in EXISTING:
        cell.ask(f"the group {word}", fetching(cell, word))
        if cell.version >= ALL_TOPICS:
            cell.ask(f"everything of {word}", fetching(cell, word, everything=True))
    if cell.version >= SEVERAL_GROUPS:
        cell.ask("all groups", fetching(cell, *WORDS))
        cell.ask("everything of all groups", fetching(cell, *WORDS, everything=True))


@asked("FindCoordinator", also=(4,))
def coordinators(cell: Cell) -> None:
    for kind, name in ((GROUPS, "groups"), (TRANSACTIONS, "transactional ids")):
        if cell.version >= SEVERAL_KEYS:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=cell.all())
            cell.ask(name, request)
            continue
        for word in EXISTING if kind == GROUPS or cell.version else ():
            key = [cell.own(word)]
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=key)
            cell.ask(f"{name}: {word}", request)
    if cell.version:
        request = FindCoordinatorRequest(key_type=SHARE_GROUPS, coordinator_keys=["s"])
        cell.ask("a share group that has no partition", request)


@asked("JoinGroup", also=(4,))
def joins(cell: Cell) -> None:
    for word in EXISTING:
        entered: list[Member] = []

        def trim(answer: Any, entered: list[Member] = entered, group: str = cell.own(word)) -> None:
            if answer.member_id and answer.error_code != MEMBER_ID_REQUIRED:
                entered.append(Member(group, answer.member_id, answer.generation_id))
            answer.member_id = answer.leader = ""
            answer.generation_id, answer.members = min(answer.generation_id, 1), []

        cell.ask(f"the group {word}", join(cell.own(word)), trim=trim)
        for member in entered:
            leave(cell, member)


@asked("SyncGroup")
def syncs(cell: Cell) -> None:
    for word in EXISTING:
        cell.ask(f"the group {word}", sync(Member(cell.own(word), "nobody", 1)))


@asked("Heartbeat")
def heartbeats(cell: Cell) -> None:
    for word in EXISTING:
        cell.ask(f"the group {word}", heartbeat(Member(cell.own(word), "nobody", 1)))


@asked("LeaveGroup", also=(3,))
def leaves(cell: Cell) -> None:
    for word in EXISTING:
        members = [MemberIdentity(member_id="nobody")]
        request = LeaveGroupRequest(group_id=cell.own(word), members=members)
        cell.ask(f"the group {word}", request)


@asked("DescribeGroups", also=(3,), prepare=begun)
def described(cell: Cell) -> None:
    cell.ask("all", DescribeGroupsRequest(groups=cell.all()))
    if cell.version >= AUTHORIZED_OPERATIONS:
        request = DescribeGroupsRequest(groups=cell.all(), include_authorized_operations=True)
        cell.ask("with operations", request)


@asked("ListGroups", also=(4,), prepare=begun)
def listed(cell: Cell) -> None:
    def mine(answer: Any) -> None:
        answer.groups = own(answer.groups, "group_id", cell.own())

    cell.ask("all", ListGroupsRequest(), trim=mine)


@asked("DeleteGroups", prepare=begun)
def deleted(cell: Cell) -> None:
    cell.ask("all", DeleteGroupsRequest(groups_names=cell.all()))
    there = cell.quietly(DescribeGroupsRequest(groups=cell.all()), DESCRIBE)
    gone = [each.group_id for each in there.groups if each.error_code]
    words = [word for word in EXISTING if cell.own(word) in gone]
    cell.note("all: deleted", words)
    for word in words:
        cell.quietly(committing(cell, word, STARTED, by_id=False), COMMIT)


@asked("OffsetDelete", prepare=begun)
def offsets_deleted(cell: Cell) -> None:
    place = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=each, partitions=place) for each in cell.all()]
    for word in EXISTING:
        request = OffsetDeleteRequest(group_id=cell.own(word), topics=topics)
        cell.ask(f"the group {word}", request)
        now = committed(cell, word)
        cell.note(f"the group {word}: deleted", [each for each in EXISTING if now[each] < 0])
        cell.quietly(committing(cell, word, STARTED, by_id=False), COMMIT)
