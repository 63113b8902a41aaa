"""What one user may see of a broker's facts. New ones are for super users until they stand here."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress

from anyio.to_thread import run_sync
from starlette.requests import Request

from smq.front.metrics.facts import Facts
from smq.front.rights import rights_of
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.security.rights import Rights, refusal

NAMES_A_TURN = 500  # A millisecond or two.

Names = frozenset[str]


def sees_all(rights: Rights) -> bool:
    """Whether a user may know what all topics together do: that tells of each."""
    return rights.cluster(Operation.DESCRIBE) and rights.all_topics(Operation.DESCRIBE, "")


def check(request: Request, operation: Operation, kind: ResourceType, name: str) -> None:
    """Raises BrokerError if who asks may not do this with a resource, whether there is one or
    not."""
    if not rights_of(request).asks(operation, kind, name):
        what = "the cluster" if kind is ResourceType.CLUSTER else f"the {kind.name.lower()} {name}"
        raise BrokerError(refusal(kind).code, f"this needs {operation.name} on {what}")


def check_cluster(request: Request, operation: Operation) -> None:
    """Likewise, of the cluster."""
    check(request, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_sees_all(request: Request) -> None:
    """Raises BrokerError if who asks may not know what all topics together do."""
    check_cluster(request, Operation.DESCRIBE)
    if not sees_all(rights_of(request)):
        sentence = "this needs DESCRIBE on all topics, and no rule that denies one of them"
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, sentence)


async def allowed(ask: Callable[[list[str]], Sequence[bool]], names: Iterable[str]) -> Names:
    """Those of some names with which a user may do something. Others have their turn meanwhile."""
    left, found = await run_sync(_in_order, names), set[str]()
    for start in range(0, len(left), NAMES_A_TURN):
        some = left[start : start + NAMES_A_TURN]
        found |= set(compress(some, ask(some)))
        await asyncio.sleep(0)
    return frozenset(found)


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


async def described(rights: Rights, names: Iterable[str]) -> Names:
    """Those topics that a user may describe."""
    return await allowed(partial(rights.topics, Operation.DESCRIBE), names)


async def visible(facts: Facts, rights: Rights) -> Facts:
    """The facts that a user may know: of topics and groups that it may describe, and of the broker
    if it may describe the cluster."""
    if rights.is_unlimited:
        return facts
    topics = await described(rights, (each.topic for each in facts.partitions))
    known = facts.members.keys() | {each.group for each in facts.offsets}
    groups = await allowed(partial(rights.groups, Operation.DESCRIBE), known)
    is_of_cluster = rights.cluster(Operation.DESCRIBE)
    of_names = await run_sync(_of_names, facts, topics, groups)
    return Facts(
        version=facts.version,
        is_ready=facts.is_ready,
        started_ms=facts.started_ms,
        processes=facts.processes if is_of_cluster else (),
        logs=facts.logs if sees_all(rights) else (),
        partitions=of_names.partitions,
        offsets=of_names.offsets,
        members=of_names.members,
        disk_free_bytes=facts.disk_free_bytes if is_of_cluster else 0,
        missing=facts.missing if is_of_cluster else (),
    )


def _of_names(facts: Facts, topics: Names, groups: Names) -> Facts:
    """What facts say of some topics and groups: in a thread, as there may be very many."""
    return Facts(
        version="",
        is_ready=False,
        started_ms=0,
        partitions=[each for each in facts.partitions if each.topic in topics],
        offsets=[each for each in facts.offsets if each.topic in topics and each.group in groups],
        members={name: count for name, count in facts.members.items() if name in groups},
    )
