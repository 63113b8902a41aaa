"""The types of resources, by Kafka's numbers."""

from collections.abc import Mapping
from enum import IntEnum

from gateway.apis.configs.brokers import BROKERS
from gateway.apis.configs.client_metrics import CLIENT_METRICS
from gateway.apis.configs.groups import GROUPS
from gateway.apis.configs.kind import ResourceKind
from gateway.apis.configs.loggers import LOGGERS
from gateway.apis.configs.topics import TOPICS
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.security.rights import Rights


class Resource(IntEnum):
    """The types of resources that have configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_rights(kind: int, name: str, operation: Operation, rights: Rights) -> None:
    """Raises BrokerError: the configs of topics and groups are theirs, all others the cluster's."""
    if kind == Resource.TOPIC:
        rights.check(operation, ResourceType.TOPIC, name)
    elif kind == Resource.GROUP:
        rights.check(operation, ResourceType.GROUP, name)
    else:
        rights.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)


KINDS: Mapping[int, ResourceKind] = {
    Resource.TOPIC: TOPICS,
    Resource.BROKER: BROKERS,
    Resource.BROKER_LOGGER: LOGGERS,
    Resource.CLIENT_METRICS: CLIENT_METRICS,
    Resource.GROUP: GROUPS,
}
