"""The five states of a classic group, and what leads from one to another.

    EMPTY --rebalance--> PREPARING --all_joined--> COMPLETING --leader_synced--> STABLE
      |  <---none_left----  ^                           |                          |
      |                     +--------- rebalance -------+------- rebalance --------+
      +--removed--> DEAD

    PREPARING    every member must join (again); each waits for its answer. An empty group waits
                 `group.initial.rebalance.delay.ms` more, so that members starting together meet
    COMPLETING   a new generation: all have been answered, the leader has all their metadata and
                 works out who does what; the others wait with SyncGroup for its word
    STABLE       everybody got an assignment; heartbeats, commits

Metadata and assignments are opaque bytes of whatever protocol type, so that consumers, Connect,
Schema Registry and cooperative rebalancing are all one to us. A member is dynamic, or static when
it brings a group instance id: then it may come back under a new member id without a rebalance.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias


class GroupState(Enum):
    """The values are Kafka's words, as ListGroups and DescribeGroups say them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = GroupState
Cause: TypeAlias = Literal["rebalance", "all_joined", "none_left", "leader_synced", "removed"]
TRANSITIONS: Mapping[GroupState, Mapping[Cause, GroupState]] = {
    S.EMPTY: {"rebalance": S.PREPARING, "removed": S.DEAD},
    S.PREPARING: {"all_joined": S.COMPLETING, "none_left": S.EMPTY},
    S.COMPLETING: {"leader_synced": S.STABLE, "rebalance": S.PREPARING},
    S.STABLE: {"rebalance": S.PREPARING},
    S.DEAD: {},
}
