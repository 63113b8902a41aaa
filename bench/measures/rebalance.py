"""How long a group takes to rebalance whose members all answer at once.

Real clients learn of a rebalance by their heartbeats, some seconds apart. These members measure
only the rest: the coordinator's part.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from smq.client.kafka.admin import coordinator
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import JOIN_GROUP, SYNC_GROUP
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from smq.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBERS = 10
PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
SESSION_MS, REBALANCE_MS = 30_000, 60_000


class RebalancedGroup:
    """The members of a group, each with a connection. Raises BrokerError.

    seconds   how long each of its rebalances took
    """

    def __init__(self, group_id: str, connections: list[KafkaConnection]) -> None:
        self._group_id, self._round = group_id, 0
        self._members: list[tuple[KafkaConnection, str]] = []
        self.seconds: list[float] = []
        for connection in connections:  # A group waits for members that have an id.
            self._members.append((connection, self._new_id(connection)))
            self.rebalance()
        self.seconds.clear()

    def _new_id(self, connection: KafkaConnection) -> str:
        answer = connection.ask(JOIN_GROUP, self._join("", self._round))
        if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            raise BrokerError(ErrorCode(answer.error_code), "a member without an id joined")
        return answer.member_id

    def _join(self, member_id: str, number: int) -> JoinGroupRequest:
        """Other metadata in each round: this is what starts one."""
        protocol = JoinGroupRequestProtocol(name=PROTOCOL, metadata=b"round %d" % number)
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )

    def rebalance(self) -> None:
        """All members join and get their assignments."""
        self._round += 1
        began = time.perf_counter()
        for connection, member_id in self._members:
            connection.start(JOIN_GROUP, self._join(member_id, self._round))
        joined = [connection.finish() for connection, _ in self._members]
        assignments = [
            SyncGroupRequestAssignment(member_id=each, assignment=b"some partitions")
            for _, each in self._members
        ]
        for (connection, _), answer in zip(self._members, joined, strict=True):
            check(answer.error_code)
            request = SyncGroupRequest(
                group_id=self._group_id,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments if answer.leader == answer.member_id else [],
            )
            connection.start(SYNC_GROUP, request)
        for connection, _ in self._members:
            check(connection.finish().error_code)
        self.seconds.append(time.perf_counter() - began)


@contextmanager
def rebalanced_group(bootstrap: str, group_id: str) -> Iterator[RebalancedGroup]:
    """A group of MEMBERS members."""
    with Cluster(bootstrap) as cluster, ExitStack() as stack:
        node = coordinator(cluster, group_id)
        connections = [cluster.connect(node) for _ in range(MEMBERS)]
        for connection in connections:
            stack.callback(connection.close)
        yield RebalancedGroup(group_id, connections)
