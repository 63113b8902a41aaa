"""Which rights each RPC of SeaweedMQ's services asks for, and which quota counts its bytes.

The process that serves them, the table in docs/seaweedmq.md and the test that asks everything as
everybody come from here. Who may not DESCRIBE a topic is told that there is none.
"""

from collections.abc import Mapping
from typing import NamedTuple

from smq.model.client_quotas import CONSUME, PRODUCE
from smq.security.acls import Operation, ResourceType

_WORDS = {
    ResourceType.TOPIC: "the topic",
    ResourceType.GROUP: "the group",
    ResourceType.CLUSTER: "the cluster",
}


class NeededRight(NamedTuple):
    """A right on what a call names."""

    operation: Operation
    resource: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {_WORDS[self.resource]}"


class RpcRights(NamedTuple):
    """What a call asks for.

    needs   without these it is refused; those on a group only where it names one
    also    what it asks for besides, as its request says; as a sentence
    quota   the one that its requests, or its answers, count for; "": none
    """

    needs: tuple[NeededRight, ...] = ()
    also: str = ""
    quota: str = ""


_DESCRIBE = NeededRight(Operation.DESCRIBE, ResourceType.TOPIC)
_READ = NeededRight(Operation.READ, ResourceType.TOPIC)
_WRITE = NeededRight(Operation.WRITE, ResourceType.TOPIC)
_GROUP = NeededRight(Operation.READ, ResourceType.GROUP)
_CHANGES = (
    "CREATE on the topic or the cluster for a new one; DESCRIBE for one that is there, ALTER for "
    "more partitions, ALTER_CONFIGS for other configs"
)
_LETTERS = "for a dead letter WRITE on its topic, and CREATE if there is none"

RPC_RIGHTS: Mapping[str, RpcRights] = {
    "FindBrokerLeader": RpcRights(),
    "BalanceTopics": RpcRights((NeededRight(Operation.ALTER, ResourceType.CLUSTER),)),
    "ListTopics": RpcRights(also="shows topics with DESCRIBE"),
    "TopicExists": RpcRights(also="without DESCRIBE there is none"),
    "ConfigureTopic": RpcRights(also=_CHANGES),
    "LookupTopicBrokers": RpcRights((_DESCRIBE,)),
    "GetTopicConfiguration": RpcRights((_DESCRIBE,)),
    "GetTopicPublishers": RpcRights((_DESCRIBE,)),
    "GetTopicSubscribers": RpcRights((_DESCRIBE,), "shows those of groups with DESCRIBE"),
    "SubscriberToSubCoordinator": RpcRights((_READ, _GROUP)),
    "PublishMessage": RpcRights((_WRITE,), quota=PRODUCE),
    "SubscribeMessage": RpcRights((_READ, _GROUP), _LETTERS, CONSUME),
    "FetchMessage": RpcRights((_READ,), quota=CONSUME),
    "GetUnflushedMessages": RpcRights((_READ,), quota=CONSUME),
    "GetPartitionRangeInfo": RpcRights((_DESCRIBE,)),
    "StartPublishSession": RpcRights((_WRITE,), f"as ConfigureTopic: {_CHANGES}"),
    "ClosePublishSession": RpcRights(also="the session is the caller's own"),
    "PublishRecord": RpcRights((_WRITE,), "the session is the caller's own", PRODUCE),
    "SubscribeRecord": RpcRights((_READ, _GROUP), _LETTERS, CONSUME),
}
NOTHING = RpcRights()


def rights_of_rpc(method: str) -> RpcRights:
    """Those of a method; one that is not served needs none."""
    return RPC_RIGHTS.get(method, NOTHING)


def page_rows() -> list[str]:
    """The table as docs/seaweedmq.md has it, without its head."""
    return [
        f"| {method} | {', '.join(map(str, found.needs)) or 'a login'} | {found.also} |"
        for method, found in RPC_RIGHTS.items()
    ]
