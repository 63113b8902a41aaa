"""What a client without rights is told by an API, and the rights with which it is not."""

from typing import Any, NamedTuple

from smq.model.errors import ErrorCode

E = ErrorCode
TOPIC, GROUP = E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED
CLUSTER, TXN = E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
ON_CLUSTER = "CLUSTER kafka-cluster"


class Case(NamedTuple):
    """`told`: what a stranger is told; `rights`: with each set of them it is told none of it."""

    api: str
    version: int
    request: Any
    told: ErrorCode
    rights: tuple[tuple[str, ...], ...]


def case(api: str, version: int, request: Any, told: ErrorCode, *rights: str) -> Case:
    """Each of the rights is enough; several are separated by commas."""
    return Case(api, version, request, told, tuple(tuple(each.split(",")) for each in rights))


def on_cluster(api: str, version: int, request: Any, operation: str) -> Case:
    return case(api, version, request, CLUSTER, f"{operation} {ON_CLUSTER}", f"ALL {ON_CLUSTER}")
