"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: how a group finds together, and who is refused."""

from typing import Any, NamedTuple

from smq.wire.generated.heartbeat import HeartbeatRequest
from smq.wire.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from smq.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from smq.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.oracle.dialogues import dialogue
from tests.oracle.talk import Talk, Voice

TIMEOUT_MS = 10_000
MEMBER_ID_REQUIRED = 79
QUIET_JOIN, QUIET_SYNC, QUIET_LEAVE = 7, 4, 4


def wish(user_data: bytes) -> bytes:
    """A subscription of the protocol type `consumer`: Kafka looks into those."""
    return b"\0\0" + b"\0\0\0\1" + b"\0\1t" + len(user_data).to_bytes(4) + user_data


class Member(NamedTuple):
    """Somebody who is in a stable group."""

    group: str
    id: str
    generation: int


def join(group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    protocols = fields.pop("protocols", {"range": wish(b"what I want")})
    asked: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "session_timeout_ms": TIMEOUT_MS,
        "rebalance_timeout_ms": TIMEOUT_MS,
        "protocol_type": "consumer",
        "protocols": [
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in protocols.items()
        ],
    }
    return JoinGroupRequest(**(asked | fields))


def sync(member: Member, *assigned: str, **fields: Any) -> SyncGroupRequest:
    assignments = [
        SyncGroupRequestAssignment(member_id=each, assignment=b"for " + str(number).encode())
        for number, each in enumerate(assigned)
    ]
    asked: dict[str, Any] = {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.id,
        "assignments": assignments,
        "protocol_type": "consumer",
        "protocol_name": "range",
    }
    return SyncGroupRequest(**(asked | fields))


def heartbeat(member: Member, **fields: Any) -> HeartbeatRequest:
    asked: dict[str, Any] = {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.id,
    }
    return HeartbeatRequest(**(asked | fields))


def enter(talk: Talk, group: str, **fields: Any) -> Member:
    """The only member of a stable group, made without a note."""
    answer = talk.quietly(join(group, **fields), QUIET_JOIN)
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = talk.quietly(join(group, answer.member_id, **fields), QUIET_JOIN)
    assert answer.error_code == 0, answer
    member = Member(group, answer.member_id, answer.generation_id)
    kind = fields.get("protocol_type", "consumer")
    name = next(iter(fields.get("protocols", {"range": b""})))
    synced = talk.quietly(
        sync(
            member,
            member.id,
            protocol_type=kind,
            protocol_name=name,
            group_instance_id=fields.get("group_instance_id"),
        ),
        QUIET_SYNC,
    )
    assert synced.error_code == 0, synced
    return member


def leave(talk: Talk, member: Member) -> None:
    gone = LeaveGroupRequest(group_id=member.group, members=[MemberIdentity(member_id=member.id)])
    assert talk.quietly(gone, QUIET_LEAVE).error_code == 0


def new_member(talk: Talk, voice: Voice, step: str, group: str, **fields: Any) -> Member:
    """Ask to join as nobody yet, and again with the member id if one must."""
    answer = voice.ask(step, join(group, **fields))
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = voice.ask(f"{step}, by its id", join(group, answer.member_id, **fields))
    return Member(group, answer.member_id, answer.generation_id)


@dialogue("JoinGroup", also=(1, 2, 4, 5, 7, 8))
def the_first(talk: Talk) -> None:
    both = {"range": wish(b"one"), "roundrobin": wish(b"two")}
    member = new_member(talk, talk.voice(), "the first", talk.own(), protocols=both)
    talk.ask("before the assignment", join(talk.own(), member.id, protocols=both))


@dialogue("JoinGroup", also=(1, 4, 5))
def two_members(talk: Talk) -> None:
    first = enter(talk, talk.own())
    answer = talk.quietly(join(talk.own()), QUIET_JOIN)
    assert answer.error_code == MEMBER_ID_REQUIRED
    second = Member(talk.own(), answer.member_id, first.generation + 1)
    talk.meet(first.id)
    talk.meet(second.id)

    def in_order(answer: JoinGroupResponse) -> None:
        answer.members = sorted(answer.members, key=lambda each: each.member_id != first.id)

    one, two = talk.voice(), talk.voice()
    two.begin(join(talk.own(), second.id))
    talk.until(heartbeat(first), lambda answer: answer.error_code == 27, 3)
    one.ask("the first again", join(talk.own(), first.id), trim=in_order)
    two.note("the second", in_order)
    first = first._replace(generation=second.generation)
    two.begin(sync(second), version=QUIET_SYNC)
    one.begin(sync(first, first.id, second.id), version=QUIET_SYNC)
    one.note("the first's assignment")
    two.note("the second's assignment")
    two.ask("the second, who wants the same", join(talk.own(), second.id))
    two.begin(join(talk.own(), second.id, protocols={"range": wish(b"more")}))
    talk.until(heartbeat(first), lambda answer: answer.error_code == 27, 3)
    one.ask("the first, when the second wants more", join(talk.own(), first.id), trim=in_order)
    two.note("the second, who wants more", in_order)


@dialogue("JoinGroup", also=(4, 5))
def refused(talk: Talk) -> None:
    talk.ask("no group", join(""))
    talk.ask("a session too short", join(talk.own(), session_timeout_ms=5999))
    talk.ask("a session too long", join(talk.own(), session_timeout_ms=1_800_001))
    talk.ask("a negative session", join(talk.own(), session_timeout_ms=-1))
    talk.ask("no protocols", join(talk.own(), protocols={}))
    talk.ask("no type of protocol", join(talk.own(), protocol_type=""))
    talk.ask("an unknown member of no group", join(talk.own(), "somebody"))
    enter(talk, talk.own())
    talk.ask("an unknown member", join(talk.own(), "somebody"))
    talk.ask("another type of protocol", join(talk.own(), protocol_type="connect"))
    talk.ask("no common protocol", join(talk.own(), protocols={"sticky": wish(b"")}))
    talk.ask("no protocols there", join(talk.own(), protocols={}))


@dialogue("JoinGroup", since=5)
def static_members(talk: Talk) -> None:
    who = {"group_instance_id": "me"}
    member = new_member(talk, talk.voice(), "the first", talk.own(), **who)
    talk.quietly(sync(member, member.id, group_instance_id="me"), QUIET_SYNC)
    again = talk.ask("itself, started again", join(talk.own(), **who))
    talk.ask("its former id", join(talk.own(), member.id, **who))
    new = Member(talk.own(), again.member_id, again.generation_id)
    talk.ask("a heartbeat", heartbeat(new, group_instance_id="me"), version=3)
    talk.ask("a heartbeat of its former id", heartbeat(member, group_instance_id="me"), version=3)
    talk.ask("its assignment", sync(new, group_instance_id="me"), version=QUIET_SYNC)
    talk.ask("an unknown id with its name", join(talk.own(), "somebody", **who))
    talk.ask("its id with another name", join(talk.own(), new.id, group_instance_id="you"))


@dialogue("JoinGroup")
def any_type(talk: Talk) -> None:
    """Metadata and assignments are opaque for every type of protocol."""
    connect = {"protocol_type": "connect", "protocols": {"sessioned": b"\xff\0\xfe"}}
    member = new_member(talk, talk.voice(), "a worker of Connect", talk.own(), **connect)
    named = {"protocol_type": "connect", "protocol_name": "sessioned"}
    talk.ask("its assignment", sync(member, member.id, **named), version=5)


@dialogue("SyncGroup", also=(3,))
def assignments(talk: Talk) -> None:
    member = enter(talk, talk.own())
    talk.ask("once more", sync(member))
    talk.ask("once more with other assignments", sync(member, member.id))
    talk.ask("a wrong generation", sync(member._replace(generation=member.generation + 1)))
    talk.ask("an old generation", sync(member._replace(generation=member.generation - 1)))
    talk.ask("an unknown member", sync(member._replace(id="somebody")))
    talk.ask("an unknown group", sync(member._replace(group=talk.own("none"))))
    talk.ask("no group", sync(member._replace(group="")))
    if talk.version >= 5:
        talk.ask("another type of protocol", sync(member, protocol_type="connect"))
        talk.ask("another protocol", sync(member, protocol_name="sticky"))
        talk.ask("no protocol", sync(member, protocol_name=None, protocol_type=None))
    second = talk.voice()
    joining = talk.quietly(join(talk.own()), QUIET_JOIN)
    second.begin(join(talk.own(), joining.member_id), version=QUIET_JOIN)
    talk.until(heartbeat(member), lambda answer: answer.error_code == 27, 3)
    talk.ask("in a rebalance", sync(member))
    again = talk.quietly(join(talk.own(), member.id), QUIET_JOIN)
    second.finish()
    member = member._replace(generation=again.generation_id)
    other = Member(talk.own(), joining.member_id, again.generation_id)
    second.begin(sync(other))
    talk.ask("the leader forgets one", sync(member, member.id))
    second.note("who was forgotten")


@dialogue("Heartbeat", also=(3,))
def heartbeats(talk: Talk) -> None:
    member = enter(talk, talk.own())
    talk.ask("a good one", heartbeat(member))
    talk.ask("a wrong generation", heartbeat(member._replace(generation=member.generation + 1)))
    talk.ask("generation -1", heartbeat(member._replace(generation=-1)))
    talk.ask("an unknown member", heartbeat(member._replace(id="somebody")))
    talk.ask("nobody", heartbeat(member._replace(id="")))
    talk.ask("an unknown group", heartbeat(member._replace(group=talk.own("none"))))
    talk.ask("no group", heartbeat(member._replace(group="")))
    if talk.version >= 3:
        talk.ask("a name nobody has", heartbeat(member, group_instance_id="me"))
    joining = talk.quietly(join(talk.own()), QUIET_JOIN)
    second = talk.voice()
    second.begin(join(talk.own(), joining.member_id), version=QUIET_JOIN)
    talk.until(heartbeat(member), lambda answer: answer.error_code == 27, 3)
    talk.ask("in a rebalance", heartbeat(member))
    leave(talk, member)
    talk.ask("who has left", heartbeat(member))


@dialogue("LeaveGroup", also=(2, 3))
def leaving(talk: Talk) -> None:
    def leaving_of(group: str, *ids: str, instance: str | None = None) -> LeaveGroupRequest:
        members = [MemberIdentity(member_id=each, group_instance_id=instance) for each in ids]
        return LeaveGroupRequest(group_id=group, members=members)

    member = enter(talk, talk.own())
    talk.ask("an unknown member", leaving_of(talk.own(), "somebody"))
    talk.ask("an unknown group", leaving_of(talk.own("none"), "somebody"))
    talk.ask("no group", leaving_of("", member.id))
    talk.ask("a member", leaving_of(talk.own(), member.id))
    talk.ask("once more", leaving_of(talk.own(), member.id))
    if talk.version < 3:
        return
    talk.ask("nobody", leaving_of(talk.own()))
    static = enter(talk, talk.own(), group_instance_id="me")
    talk.ask("a static one, by another id", leaving_of(talk.own(), "somebody", instance="me"))
    talk.ask("a static one, by its name", leaving_of(talk.own(), "", instance="me"))
    other = enter(talk, talk.own(), group_instance_id="me")
    assert other.id != static.id
    talk.ask("two, of whom one is unknown", leaving_of(talk.own(), "somebody", other.id))
