"""With ten thousand topics, users and rules no step takes long: of a limited client's request, of a
change of rights, and of what follows from that."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from gateway.apis.bounds import WHOLE_ELEMENTS_MAX
from gateway.coordinator_dispatch import dispatch as coordinate
from gateway.dispatch import dispatch
from gateway.parts import Parts
from smq.security.access import AccessView
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.authorizer import Authorizer
from smq.security.caller import Caller
from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.principals import Peer, Principal
from smq.security.published import UserCredential
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.shard.fetch_sessions import Asked, FetchSession
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.generated.describe_acls import DescribeAclsRequest
from smq.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest
from smq.wire.generated.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from smq.wire.generated.metadata import MetadataRequest
from tests.gateway.apis.rights import limited, super_user
from tests.gateway.coordinator_bench import NODES, CoordinatorBench, relayed
from tests.gateway.groups import make_topic
from tests.gateway.shard_api_bench import ShardBench
from tests.security.test_access import ON, FakeBlock
from tests.shard.shard_bench import NOW, topic

COUNT, AT_ONCE = 10_000, 900
NAMED_MAX = 2 * WHOLE_ELEMENTS_MAX
STEP_S_MAX = 0.010
PEER = Peer(Principal("User", "u7"), "10.0.0.7")


def bindings(start: str = "topic-") -> list[AclBinding]:
    """Of a hundred principals, literal and prefixed, some of them for one address."""
    how = PatternType.LITERAL, PatternType.PREFIXED
    return [
        AclBinding(
            ResourcePattern(ResourceType.TOPIC, f"{start}{each // 4:05}", how[each % 2]),
            AccessControlEntry(
                f"User:u{each % 100}",
                "*" if each % 3 else f"10.0.0.{each % 250}",
                Operation.READ,
                Permission.ALLOW,
            ),
        )
        for each in range(COUNT)
    ]


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, which our processes call themselves."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("api", "version", "request_"),
    [
        ("Metadata", 12, MetadataRequest(topics=None, include_topic_authorized_operations=True)),
        ("DescribeTopicPartitions", 0, DescribeTopicPartitionsRequest()),
    ],
)
def test_no_step_over_all_topics_takes_ten_milliseconds(
    tmp_path: Path, api: str, version: int, request_: object
) -> None:
    numbers = (range(i, i + 1) for i in range(1, COUNT))
    elsewhere = (topic(f"topic-{each.start:05}", each, logs=(1,)) for each in numbers)
    bench = ShardBench(tmp_path, *elsewhere)
    caller = Caller("10.0.0.7", rights=Rights(Authorizer(Rules(bindings())), PEER))
    fastest = []
    for _ in range(3):  # The machine may be busy: the least CPU of each step's runs counts.
        question = relayed(api, version, request_).request
        times = [process_time()]
        asked = dispatch(question, bench.shard, NOW, caller)
        assert isinstance(asked.result, Parts)
        times.append(process_time())
        while not asked.result.step():
            times.append(process_time())
        fastest.append([after - before for before, after in pairwise(times)])
    assert len(fastest[0]) > 10
    assert max(map(min, zip(*fastest, strict=True))) < STEP_S_MAX


# --- changes --------------------------------------------------------------------------------------

EVERY: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
KEYS = ScramCredential(b"salt", b"stored", b"server", 4096)
SHA_256 = ScramMechanism.SCRAM_SHA_256


def creations(run: int) -> CreateAclsRequest:
    rows = bindings(f"new-{run}-")[:AT_ONCE]
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in rows
        ]
    )


def upsertions(run: int) -> AlterUserScramCredentialsRequest:
    users = [
        ScramCredentialUpsertion(
            name=f"new-{run}-{each}",
            mechanism=1,
            iterations=4096,
            salt=b"salt",
            salted_password=bytes(32),
        )
        for each in range(AT_ONCE)
    ]
    return AlterUserScramCredentialsRequest(upsertions=users)


def deletions(run: int) -> AlterUserScramCredentialsRequest:
    users = range(run * AT_ONCE, (run + 1) * AT_ONCE)
    gone = [ScramCredentialDeletion(name=f"u{each}", mechanism=1) for each in users]
    return AlterUserScramCredentialsRequest(deletions=gone)


def steps_of(bench: CoordinatorBench, name: str, version: int, request: Any) -> list[float]:
    """How long each step of a request took."""
    question = relayed(name, version, request, 1, bench.asker)
    times = [process_time()]
    asked = coordinate(question, bench.coordinator, NODES, bench.now, 1)
    times.append(process_time())
    assert isinstance(asked.response, Parts)
    while not asked.response.step():
        times.append(process_time())
    times.append(process_time())
    asked.response.written().pieces()
    times.append(process_time())
    return [after - before for before, after in pairwise(times)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "version", "make"),
    [
        ("CreateAcls", 3, creations),
        ("DescribeAcls", 3, lambda _: DescribeAclsRequest(**EVERY)),
        ("DeleteAcls", 3, lambda _: DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERY)] * 2)),
        ("AlterUserScramCredentials", 0, upsertions),
        ("AlterUserScramCredentials", 0, deletions),
        ("DescribeUserScramCredentials", 0, lambda _: DescribeUserScramCredentialsRequest()),
    ],
    ids=["create", "describe", "delete", "put users", "delete users", "describe users"],
)
def test_no_step_of_a_change_or_a_look_at_all_takes_ten_milliseconds(
    bench: CoordinatorBench, api: str, version: int, make: Callable[[int], object]
) -> None:
    super_user(bench)
    access, every = bench.coordinator.access, bindings()
    for each in range(COUNT):
        access.put_credential(UserCredential(f"u{each}", SHA_256, KEYS))
    fastest = []
    for run in range(3):
        access.create(every)
        with uncollected():
            fastest.append(steps_of(bench, api, version, make(run)))
    assert max(map(min, zip(*fastest, strict=False))) < STEP_S_MAX
    access.invariants()


def namings(bench: CoordinatorBench, _run: int) -> DeleteTopicsRequest:
    """Each topic by its name and by its id."""
    topics = bench.coordinator.topics.catalog.by_name.values()
    states = [DeleteTopicState(name=each.name) for each in topics]
    states += [DeleteTopicState(topic_id=each.id) for each in topics]
    return DeleteTopicsRequest(topics=states)


def wishes(_bench: CoordinatorBench, run: int) -> CreateTopicsRequest:
    rows = [
        CreatableTopic(name=f"topic-{run}{each:04}", num_partitions=1, replication_factor=1)
        for each in range(NAMED_MAX)
    ]
    return CreateTopicsRequest(topics=rows)


@pytest.mark.parametrize(
    ("api", "version", "make"),
    [("CreateTopics", 5, wishes), ("DeleteTopics", 6, namings)],
    ids=["create", "delete"],
)
def test_no_step_of_a_limited_clients_change_of_topics_takes_ten_milliseconds(
    bench: CoordinatorBench,
    api: str,
    version: int,
    make: Callable[[CoordinatorBench, int], object],
) -> None:
    limited(bench, "u7", "")
    bench.coordinator.access.create(bindings())
    for each in range(NAMED_MAX // 2):
        make_topic(bench, f"topic-{each:05}")
    fastest = []
    for run in range(3):
        request = make(bench, run)
        with uncollected():
            fastest.append(steps_of(bench, api, version, request))
    assert max(map(min, zip(*fastest, strict=True))) < STEP_S_MAX


def test_a_shard_takes_what_was_published_in_less_than_ten_milliseconds() -> None:
    block, every, took = FakeBlock(), bindings(), []
    access = AccessView(block, ON)
    block.publish(*every)
    access.refresh()
    for run in range(3):
        block.publish(*every, *bindings(f"new-{run}-")[:AT_ONCE])
        with uncollected():
            began = process_time()
            access.refresh()
            took.append(process_time() - began)
    assert min(took) < STEP_S_MAX
    access.invariants()


def test_a_session_of_ten_thousand_topics_follows_rights_in_less_than_ten_milliseconds(
    tmp_path: Path,
) -> None:
    numbers = (range(i, i + 1) for i in range(1, COUNT))
    bench = ShardBench(
        tmp_path, *(topic(f"topic-{each.start:05}", each, logs=(1,)) for each in numbers)
    )
    block = FakeBlock()
    bench.shard.access = AccessView(block, ON)
    rights = bench.shard.access.rights_of(PEER)
    session = FetchSession(has_ids=True)
    session.update(Asked(each, 0, -1, 0, -1, 1000) for each in bench.shard.catalog.by_id)
    every, took = bindings(), []
    for run in range(3):
        block.publish(*every[run:])
        bench.shard.access.refresh()
        with uncollected():
            began = process_time()
            session.follow_rights(bench.shard, rights)
            took.append(process_time() - began)
    assert min(took) < STEP_S_MAX
