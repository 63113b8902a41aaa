"""Relayed requests: answered, refused, or answered later; whatever they are."""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gateway.apis.table import API_BY_KEY, APIS, Where
from gateway.coordinator_dispatch import awaited_end, dispatch
from gateway.parts import Parts
from smq.coordinator.transactions.waiting import StillEnding
from smq.model.errors import ErrorCode, PeerError
from smq.testing.messages import random_message
from smq.wire.codec import Message
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.heartbeat import HeartbeatRequest
from smq.wire.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from smq.wire.internal.frames import Relayed
from smq.wire.messages.tables import APIS as WIRE_APIS
from tests.gateway.apis.rights import limited
from tests.gateway.apis.transactions.producers import adding, begin, end, open_
from tests.gateway.coordinator_bench import ASKER, NODES, CoordinatorBench, finished, relayed
from tests.gateway.groups import join_request, make_topic

COORDINATED = [api for api in APIS if api.where is Where.COORDINATOR]


def test_metadata_makes_the_topics_it_names_and_tells_them(bench: CoordinatorBench) -> None:
    topics = [MetadataRequestTopic(name="new"), MetadataRequestTopic(name="bad name")]
    answer = bench.ask("Metadata", 8, MetadataRequest(topics=topics))
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("new", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert set(bench.coordinator.topics.catalog.by_name) == {"new"}


def test_a_request_that_a_shard_answers_is_refused(bench: CoordinatorBench) -> None:
    with pytest.raises(PeerError, match="not for the coordinator"):
        bench.ask("ApiVersions", 0, ApiVersionsRequest())


def test_a_version_that_is_not_is_refused(bench: CoordinatorBench) -> None:
    question = relayed("Heartbeat", 4, HeartbeatRequest(group_id="g"))
    garbled = bytearray(question.request)
    garbled[3] = 5
    with pytest.raises(PeerError, match="no version 5"):
        dispatch(
            question._replace(request=memoryview(bytes(garbled))),
            bench.coordinator,
            NODES,
            bench.now,
            1,
        )


def test_only_who_may_use_a_transactional_id_waits_for_its_transaction(
    bench: CoordinatorBench,
) -> None:
    make_topic(bench, "t")
    producer = begin(bench)
    open_(bench, producer, "t", 0)
    bench.is_deaf = True
    assert end(bench, producer).error_code == ErrorCode.NONE
    rights = "WRITE TRANSACTIONAL_ID mine"
    for user, awaited in (("mallory", None), ("alice", StillEnding("mine"))):
        limited(bench, user, rights if awaited else "")
        request = adding(producer, "t", 0)
        asked = relayed("AddPartitionsToTxn", 3, request, asker=bench.asker)
        assert awaited_end(asked, bench.coordinator) == awaited


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), rest=st.binary(max_size=200))
def test_garbage_is_answered_or_refused_and_nothing_else(
    bench: CoordinatorBench, data: st.DataObject, rest: bytes
) -> None:
    api = data.draw(st.sampled_from(COORDINATED))
    version = data.draw(st.integers(api.versions.start, api.versions.stop - 1))
    head = api.key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\1\xff\xff"
    question = Relayed(1, ASKER, memoryview(head + rest))
    try:
        asked = dispatch(question, bench.coordinator, NODES, bench.now, 1)
    except PeerError:
        return
    if isinstance(asked.response, Parts):
        finished(asked.response)
    elif asked.response is not None:
        asked.origin.encode(asked.response)
    bench.answers()


@pytest.mark.parametrize("version", [5, 9])
def test_a_group_whose_name_would_fit_into_no_answer_is_refused(
    bench: CoordinatorBench, version: int
) -> None:
    """ListGroups failed for everybody then."""
    name = "\0" * 12_000  # Which comes as bytes that are no text, and grow when they are written.
    question = relayed("JoinGroup", version, join_request(group_id=name))
    data = bytes(question.request).replace(name.encode(), b"\xff" * len(name))
    question = question._replace(request=memoryview(data))
    with pytest.raises(PeerError, match="no UTF-8 and too long"):
        dispatch(question, bench.coordinator, NODES, bench.now, 1)
    assert not [*bench.coordinator.groups]


def test_an_answer_that_does_not_fit_an_old_version_is_refused(bench: CoordinatorBench) -> None:
    question = relayed("ListGroups", 0, ListGroupsRequest())
    origin = dispatch(question, bench.coordinator, NODES, bench.now, 1).origin
    answer = ListGroupsResponse(groups=[ListedGroup(group_id="x" * 40_000, protocol_type="")])
    with pytest.raises(PeerError, match="does not fit"):
        origin.encode(answer)


def plausible(random: Random, bench: CoordinatorBench, message: Any) -> None:
    """Put names in place of random ones that make requests meet each other."""
    groups = list(bench.coordinator.groups)
    members = [member.member_id for group in groups for member in group.roster]
    choices: dict[str, list[Any]] = {
        "group_id": ["g", "g", "h"],
        "groups_names": [["g"], ["h", "x"]],
        "member_id": ["", *members],
        "group_instance_id": [None, None, "i", "j"],
        "session_timeout_ms": [6000, 10_000],
        "rebalance_timeout_ms": [-1, 0, 10_000],
        "protocol_type": ["consumer"],
        "protocol_name": ["range"],
        "generation_id": [group.generation for group in groups] or [0],
        "generation_id_or_member_epoch": [-1, *(group.generation for group in groups)],
        "num_partitions": [-1, 1, 3],
        "replication_factor": [-1, 1],
        "configs": [[]],
        "partition_index": [0, 1, 2],
    }
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name in choices and random.random() < 0.9:
            setattr(message, name, random.choice(choices[name]))
        elif name == "name" and random.random() < 0.8:
            message.name = random.choice(["t", "u"])
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    plausible(random, bench, each)


@pytest.mark.parametrize("seed", range(12))
def test_any_conversation_is_answered_and_leaves_the_groups_whole(
    bench: CoordinatorBench, seed: int
) -> None:
    random = Random(seed)
    apis = [api for api in WIRE_APIS if API_BY_KEY[api.key].where is Where.COORDINATOR]
    waiting: set[int] = set()
    for _ in range(300):
        api = random.choice(apis)
        version = random.randint(api.versions.start, api.versions.stop - 1)
        request = random_message(random, api, f"{api.name}Request", version)
        plausible(random, bench, request)
        answer = bench.ask(api.name, version, request)
        if isinstance(answer, int):
            waiting.add(answer)
        waiting -= bench.answers().keys()
        bench.wait(random.choice((0, 0, 1000, 7000)))
        waiting -= bench.answers().keys()
        for group in bench.coordinator.groups:
            group.invariants()
        if random.random() < 0.05:
            bench.store.commit()
            bench.restart()
            waiting.clear()
    bench.wait(1_000_000)
    assert waiting == bench.answers().keys()
