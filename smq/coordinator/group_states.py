"""The five states of a classic group, and what leads from one to another.

    EMPTY --rebalance--> PREPARING --all_joined--> COMPLETING --leader_synced--> STABLE
      |  <---none_left----  ^                           |                          |
      |                     +--------- rebalance -------+------- rebalance --------+
      +--removed--> DEAD

    From each but DEAD:  held --> STABLE    released --> EMPTY

    PREPARING    every member must join (again); each waits for its answer. An empty group waits
                 `group.initial.rebalance.delay.ms` more, so that members starting together meet
    COMPLETING   a new generation: all have been answered, the leader has their metadata and
                 assigns the partitions; the others wait for that in SyncGroup
    STABLE       every member has its assignment; heartbeats, commits

    held         a process of ours has named members and what they have (smq.coordinator.holding)
    released     it has named none

Metadata and assignments are opaque bytes of any protocol type, so consumers, Connect, Schema
Registry and cooperative rebalancing need no special cases. A member is dynamic, or static if it
brings a group instance id: then it may return under a new member id without a rebalance.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias


class GroupState(Enum):
    """The values are Kafka's names, as in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = GroupState
Cause: TypeAlias = Literal[
    "rebalance", "all_joined", "none_left", "leader_synced", "removed", "held", "released"
]
_NAMED: Mapping[Cause, GroupState] = {"held": S.STABLE, "released": S.EMPTY}
TRANSITIONS: Mapping[GroupState, Mapping[Cause, GroupState]] = {
    S.EMPTY: {"rebalance": S.PREPARING, "removed": S.DEAD, **_NAMED},
    S.PREPARING: {"all_joined": S.COMPLETING, "none_left": S.EMPTY, **_NAMED},
    S.COMPLETING: {"leader_synced": S.STABLE, "rebalance": S.PREPARING, **_NAMED},
    S.STABLE: {"rebalance": S.PREPARING, **_NAMED},
    S.DEAD: {},
}
