"""A member's requests to its group's coordinator: join, sync, heartbeat, leave.

The coordinator answers a join once all members have joined, which takes as long as the slowest
needs. So the caller waits for answers, with `await_readable`, and may raise Stopped meanwhile.

A static member, which has a name of its own (`group_instance_id`), never sends that it leaves. It
is out of the group after the session timeout. A member that joins under its name before then takes
its place, and the old one is fenced.
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
from smq.client.errors import Act
from smq.client.facts import broker_facts
from smq.client.kafka.admin import coordinator
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import KafkaConnection
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
    """The member was stopped while it waited for an answer."""


class GroupSession:
    """A member's identity, as the coordinator gave it. Raises BrokerError, PeerError."""

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
        self._connection: KafkaConnection | None = None
        self.membership = Membership()
        self._counts: dict[str, int] | None = None  # Of partitions, as this leader assigned them.

    def forget(self) -> None:
        """Drop the connection, and find the coordinator again."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        if self._cluster is not None:
            self._cluster.forget()

    def close(self) -> None:
        """Close the connections."""
        self.forget()

    def resign(self) -> None:
        """Drop the membership: the coordinator does not know it any more."""
        self.membership, self._counts = Membership(), None

    def join(
        self, topics: frozenset[str], owned: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Join, or join again; return the partitions that are assigned to us."""
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
        check(synced.error_code, act=Act("join", group=self._group))
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
                check(joined.error_code, act=Act("join", group=self._group))
                return joined
            self.membership = Membership(-1, joined.member_id)

    def _allowed_session(self) -> str:
        """An error message with the session timeouts that the broker allows."""
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
        if joined.skip_assignment:  # A static leader has returned: all keep their partitions.
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
        """Whether this is the leader, and the topics' partitions differ from those it assigned."""
        counts = self._counts
        if counts is None:
            return False
        return counts != dict.fromkeys(counts, 0) | self._partition_counts(counts)

    def heartbeat(self) -> None:
        """Send a heartbeat. The error code says what to do."""
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=self.membership.generation_id,
            member_id=self.membership.member_id,
            group_instance_id=self.membership.instance_id,
        )
        check(self._ask(HEARTBEAT, request).error_code, act=Act("join", group=self._group))

    def leave(self) -> None:
        """Leave the group, so that others take over at once. A static member stays in it."""
        member_id, is_static = self.membership.member_id, self.membership.instance_id is not None
        self.resign()
        if not member_id or is_static:
            return
        members = [MemberIdentity(member_id=member_id)]
        request = LeaveGroupRequest(group_id=self._group, members=members)
        self._coordinator().ask(LEAVE_GROUP, request)

    def _coordinator(self) -> KafkaConnection:
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
            connection.close()  # It owes an answer: it cannot be used again.
            raise
        return connection.finish()
