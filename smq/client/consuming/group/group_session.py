"""The talk of a group's member with its coordinator: join, sync, heartbeat, leave.

A join is answered when all members have joined, which takes as long as the slowest needs. So it is
the member that waits for answers, and raises Stopped when it is told to stop meanwhile.

A static member, one with a name of its own (`group_instance_id`), never says that it leaves: it is
out when nothing is heard of it for the session's timeout, and who comes with its name before that
goes on in its place, while what was there before is fenced.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from smq.client.consuming.consumer_settings import ConsumerSettings
from smq.client.consuming.group.assignors import ASSIGNORS, Member
from smq.client.consuming.group.commits import Membership
from smq.client.consuming.group.group_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from smq.client.facts import broker_facts
from smq.client.kafka.admin import coordinator
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import Connection
from smq.client.kafka.questions import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, Question
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.heartbeat import (
    HeartbeatRequest,
)
from smq.wire.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from smq.wire.generated.leave_group import (
    LeaveGroupRequest,
    MemberIdentity,
)
from smq.wire.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
SESSION_TIMEOUTS = ("group.min.session.timeout.ms", "group.max.session.timeout.ms")


class Stopped(Exception):
    """The member was told to stop while it waited."""


class GroupSession:
    """Who this member is, as far as the coordinator has said. Raises BrokerError, PeerError."""

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        settings: ConsumerSettings,
        await_readable: Callable[[int], None],
    ) -> None:
        assert settings.group is not None
        self._group = settings.group
        self._settings = settings
        self._open_cluster = open_cluster
        self._await_readable = await_readable
        self._cluster: Cluster | None = None
        self._connection: Connection | None = None
        self.membership = Membership()
        self._counts: dict[str, int] | None = None  # Of partitions, as this leader has shared them.

    def forget(self) -> None:
        """Look for the coordinator again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        if self._cluster is not None:
            self._cluster.forget()

    def close(self) -> None:
        """Close the connections."""
        self.forget()

    def resign(self) -> None:
        """Be nobody: the coordinator does not know us any more."""
        self.membership, self._counts = Membership(), None

    def join(
        self, topics: frozenset[str], owned: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Join, or join again; the partitions that are ours then."""
        me = Member(topics, owned, self.membership.generation_id if owned else -1)
        joined = self._join(me)
        instance_id = self._settings.group_instance_id
        self.membership = Membership(joined.generation_id, joined.member_id, instance_id)
        self._counts = None
        assignments: Mapping[str, set[TopicPartition]] = {}
        if joined.leader == joined.member_id:
            assignments = self._assign(joined)
        synced: SyncGroupResponse = self._ask(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each, assignment=write_assignment(names))
                    for each, names in assignments.items()
                ],
            ),
        )
        check(synced.error_code)
        return read_assignment(bytes(synced.assignment))

    def _join(self, me: Member) -> JoinGroupResponse:
        subscription = write_subscription(me)
        while True:
            joined: JoinGroupResponse = self._ask(
                JOIN_GROUP,
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=round(1000 * self._settings.session_timeout_s),
                    rebalance_timeout_ms=round(1000 * self._settings.poll_interval_s_max),
                    member_id=self.membership.member_id,
                    group_instance_id=self._settings.group_instance_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=[
                        JoinGroupRequestProtocol(name=each, metadata=subscription)
                        for each in self._settings.assignors
                    ],
                ),
            )
            if joined.error_code == ErrorCode.INVALID_SESSION_TIMEOUT:
                raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT, self._allowed_session())
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                check(joined.error_code)
                return joined
            self.membership = Membership(-1, joined.member_id)

    def _allowed_session(self) -> str:
        """What the broker takes as the session's timeout, by what it says of itself."""
        assert self._cluster is not None
        settings = broker_facts(self._cluster).settings
        least, most = (settings.get(name, "?") for name in SESSION_TIMEOUTS)
        return (
            f"session_timeout_s is {self._settings.session_timeout_s}; it should be from {least} "
            f"to {most} ms, the broker's {' and '.join(SESSION_TIMEOUTS)}"
        )

    def _assign(self, joined: JoinGroupResponse) -> Mapping[str, set[TopicPartition]]:
        members = {
            each.member_id: read_subscription(bytes(each.metadata))._replace(
                instance_id=each.group_instance_id
            )
            for each in joined.members
        }
        topics = {topic for member in members.values() for topic in member.topics}
        self._counts = dict.fromkeys(topics, 0) | self._partition_counts(topics)
        if joined.skip_assignment:  # A static leader is back: all keep what they have.
            return {}
        return ASSIGNORS[joined.protocol_name or ""](members, self._counts)

    def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        assert self._cluster is not None
        return {
            each.name or "": len(each.partitions)
            for each in self._cluster.metadata(sorted(topics))
            if each.error_code == ErrorCode.NONE
        }

    def has_other_partitions(self) -> bool:
        """Whether this is the leader, and topics have other partitions than it has shared."""
        counts = self._counts
        if counts is None:
            return False
        return counts != dict.fromkeys(counts, 0) | self._partition_counts(counts)

    def heartbeat(self) -> None:
        """Say that we live; an error code says what to do."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.membership.generation_id,
            member_id=self.membership.member_id,
            group_instance_id=self.membership.instance_id,
        )
        check(self._ask(HEARTBEAT, request).error_code)

    def leave(self) -> None:
        """Have the others go on without us at once; a static member may be back soon."""
        member_id, is_static = self.membership.member_id, self.membership.instance_id is not None
        self.resign()
        if not member_id or is_static:
            return
        request = LeaveGroupRequest(
            group_id=self._group,
            member_id=member_id,
            members=[MemberIdentity(member_id=member_id)],
        )
        self._coordinator().ask(LEAVE_GROUP, request)

    def _coordinator(self) -> Connection:
        if self._cluster is None:
            self._cluster = self._open_cluster()
        if self._connection is None or self._connection.is_closed:
            self._connection = self._cluster.connect(coordinator(self._cluster, self._group))
        return self._connection

    def _ask(self, question: Question[Any, Any], request: Any) -> Any:  # noqa: ANN401
        connection = self._coordinator()
        connection.start(question, request)
        try:
            self._await_readable(connection.fileno())
        except Stopped:
            connection.close()  # An answer is still owed: nobody else may ask over it.
            raise
        return connection.finish()
