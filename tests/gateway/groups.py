"""Groups made by the dozen, for the tests of the APIs that look at them."""

from typing import Any

from smq.coordinator.topics import NewTopic
from smq.model.catalog import Topic
from smq.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from smq.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.gateway.coordinator_bench import CoordinatorBench

DELAY_MS = 3000


def join_request(**fields: Any) -> JoinGroupRequest:
    """A JoinGroup request that is fine but for `fields`."""
    request: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    }
    return JoinGroupRequest(**request | fields)


def stable_member(bench: CoordinatorBench, group_id: str = "g", **fields: Any) -> str:
    """A stable group of one, at generation 1; returns the member's id."""
    asked = bench.ask("JoinGroup", 5, join_request(group_id=group_id, **fields))
    if not isinstance(asked, int):
        member_id = asked.member_id
        again = join_request(group_id=group_id, member_id=member_id, **fields)
        asked = bench.ask("JoinGroup", 5, again)
    bench.wait(DELAY_MS)
    member_id = bench.answers()[asked].member_id
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=1,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"work")],
    )
    assert bench.ask("SyncGroup", 3, request).assignment == b"work"
    return str(member_id)


def make_topic(
    bench: CoordinatorBench, name: str = "t", partitions: int = 3, **configs: str
) -> Topic:
    """A topic; configs have underscores for their dots."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    wanted = NewTopic(name=name, partition_count=partitions, configs=named)
    return bench.coordinator.topics.create(wanted, bench.now)
