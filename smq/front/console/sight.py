"""What one user may see of a broker's facts. New ones are for super users until they stand here."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import compress

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request

from smq.front.metrics.facts import Facts
from smq.front.rights import rights_of
from smq.model.errors import BrokerError, ErrorCode
from smq.security.acls import CLUSTER_NAME, Operation, ResourceType
from smq.security.authorizer import Choice
from smq.security.rights import Rights, refusal

Names = frozenset[str]


def sees_all(rights: Rights) -> Callable[[], bool]:
    """Says whether a user may know what all topics together do, as that tells of each: for a
    thread, as rules may be very many."""
    if not rights.cluster(Operation.DESCRIBE):
        return lambda: False
    return partial(rights.all_topics(Operation.DESCRIBE), "")


def check(request: Request, operation: Operation, kind: ResourceType, name: str) -> None:
    """Raises BrokerError if who asks may not do this with a resource, whether there is one or
    not."""
    if not rights_of(request).asks(operation, kind, name):
        what = "the cluster" if kind is ResourceType.CLUSTER else f"the {kind.name.lower()} {name}"
        raise BrokerError(refusal(kind).code, f"this needs {operation.name} on {what}")


def check_cluster(request: Request, operation: Operation) -> None:
    """Likewise, of the cluster."""
    check(request, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_sees_all(sees: Callable[[], bool]) -> None:
    """Raises BrokerError if `sees_all` has said no: in a thread."""
    if not sees():
        sentence = "this needs DESCRIBE on all topics, and no rule that denies one of them"
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, sentence)


def allowed(choose: Choice, names: Iterable[str]) -> Names:
    """The chosen ones of some names: for a thread, as there may be very many."""
    some = [*set(names)]
    return frozenset(compress(some, choose(some)))


async def visible(facts: Facts, rights: Rights, looking: CapacityLimiter | None = None) -> Facts:
    """The facts that a user may know: of topics and groups that it may describe, and of the broker
    if it may describe the cluster."""
    if rights.is_unlimited:
        return facts
    topics = rights.choice(Operation.DESCRIBE, ResourceType.TOPIC)
    groups = rights.choice(Operation.DESCRIBE, ResourceType.GROUP)
    is_of_cluster = rights.cluster(Operation.DESCRIBE)
    sees, work = sees_all(rights), partial(_of_names, facts, topics, groups)
    of_names = await run_sync(work, sees, limiter=looking)
    return Facts(
        version=facts.version,
        is_ready=facts.is_ready,
        started_ms=facts.started_ms,
        processes=facts.processes if is_of_cluster else (),
        logs=of_names.logs,
        partitions=of_names.partitions,
        offsets=of_names.offsets,
        members=of_names.members,
        disk_free_bytes=facts.disk_free_bytes if is_of_cluster else 0,
        missing=facts.missing if is_of_cluster else (),
    )


def _of_names(
    facts: Facts, choose_topics: Choice, choose_groups: Choice, sees: Callable[[], bool]
) -> Facts:
    """What facts say of some topics and groups, and if `sees` of all together: in a thread, as
    there may be very many."""
    topics = allowed(choose_topics, (each.topic for each in facts.partitions))
    known = facts.members.keys() | {each.group for each in facts.offsets}
    groups = allowed(choose_groups, known)
    return Facts(
        version="",
        is_ready=False,
        started_ms=0,
        logs=facts.logs if sees() else (),
        partitions=[each for each in facts.partitions if each.topic in topics],
        offsets=[each for each in facts.offsets if each.topic in topics and each.group in groups],
        members={name: count for name, count in facts.members.items() if name in groups},
    )
