"""The recorded matrix: whole, as Kafka answers it, and in agreement with our authorizer.

With the marker `oracle`, a live Apache Kafka plays it again, which shows that it still holds.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.apis.table import APIS, Api
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
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.testing.kafka import KafkaUnavailable
from smq.wire.generated.apis import API_BY_NAME
from tests.oracle.comparison import Difference, differences
from tests.oracle.rights.cell import EXISTING, Doors
from tests.oracle.rights.changes import CHANGES, play as play_change
from tests.oracle.rights.principals import HERE, PRINCIPALS, lasting_rules, rules_of_dialogue
from tests.oracle.rights.record import (
    CHANGES_RECORDED,
    changes_text,
    path_of,
    recorded,
    recorded_changes,
)
from tests.oracle.rights.rows import as_written
from tests.oracle.rights.stage import all_asked, play, start_kafka

NAMES = sorted(all_asked())
OPERATIONS_UNKNOWN = -(2**31)


@pytest.mark.parametrize("api", APIS, ids=[each.name for each in APIS])
def test_every_api_is_asked_in_its_lowest_first_flexible_and_highest_version(api: Api) -> None:
    played = {
        version
        for dialogue in all_asked().values()
        if dialogue.api == api.name
        for version in dialogue.versions
    }
    flexible = API_BY_NAME[api.name].flexible_from
    assert {api.versions[0], min(flexible, api.versions[-1]), api.versions[-1]} <= played


@pytest.mark.parametrize("name", NAMES)
def test_every_dialogue_is_recorded_by_every_principal(name: str) -> None:
    dialogue = all_asked()[name]
    versions = recorded(dialogue)
    assert tuple(versions) == dialogue.versions
    for matrix in versions.values():
        steps = [tuple(each) for each in matrix.values()]
        assert steps[0]
        assert set(steps) == {steps[0]}, "every principal takes the same steps"
    written = json.loads(path_of(dialogue.api).read_text())["dialogues"][name]
    assert as_written(versions) == written


def test_every_recorded_dialogue_is_one_of_the_matrix() -> None:
    files = sorted(path_of("").parent.glob("*.json"))
    assert files == sorted({path_of(each.api) for each in all_asked().values()})
    kept = {name for each in files for name in json.loads(each.read_text())["dialogues"]}
    assert kept == set(NAMES)


def test_every_change_is_recorded() -> None:
    assert list(recorded_changes()) == list(CHANGES)
    assert changes_text(recorded_changes()) == CHANGES_RECORDED.read_text()


def rights(principal: str, own: str) -> Rights:
    """What our authorizer says of a principal, by the rules of one dialogue."""
    rules = Rules(
        AclBinding(
            ResourcePattern(
                ResourceType(each.resource_type),
                each.resource_name,
                PatternType(each.resource_pattern_type),
            ),
            AccessControlEntry(
                each.principal,
                each.host,
                Operation(each.operation),
                Permission(each.permission_type),
            ),
        )
        for each in (*lasting_rules(), *rules_of_dialogue(own))
    )
    supers = frozenset({Principal("User", "super")})
    return Rights(Authorizer(rules, supers), Peer(Principal("User", principal), HERE))


def described(name: str, version: int, step: str) -> Iterator[tuple[str, Any]]:
    for principal, steps in recorded(all_asked()[name])[version].items():
        yield principal, steps[step]


def test_the_operations_on_topics_are_those_of_our_authorizer() -> None:
    name, version = "rights-metadata-seen", 10
    for principal, answer in described(name, version, "with the topics' operations"):
        ours = rights(principal, f"{name}-v{version}")
        for topic in answer["topics"]:
            operations = topic.get("topic_authorized_operations", OPERATIONS_UNKNOWN)
            if topic["error_code"] == 29:
                assert not ours.topic(Operation.DESCRIBE, topic["name"].replace("~", f"{name}-v10"))
                continue
            whole = topic["name"].replace("~", f"{name}-v{version}")
            assert ours.operations(ResourceType.TOPIC, whole) == operations, (principal, topic)


def test_the_operations_on_groups_are_those_of_our_authorizer() -> None:
    name, version = "rights-describe-groups-described", 5
    for principal, answer in described(name, version, "with operations"):
        ours = rights(principal, f"{name}-v{version}")
        for word, group in zip(EXISTING, answer["groups"], strict=False):
            whole = f"{name}-v{version}-{word}"
            allowed = ours.group(Operation.DESCRIBE, whole)
            assert allowed == (group["error_code"] == 0), (principal, group)
            if allowed:
                operations = group["authorized_operations"]
                assert ours.operations(ResourceType.GROUP, whole) == operations, principal


def test_the_operations_on_the_cluster_are_those_of_our_authorizer() -> None:
    name = "rights-describe-cluster-described"
    for principal, answer in described(name, 0, "with operations"):
        ours = rights(principal, f"{name}-v0")
        operations = (
            ours.operations(ResourceType.CLUSTER, "kafka-cluster")
            if ours.cluster(Operation.DESCRIBE)
            else 0
        )
        assert operations == answer.get("cluster_authorized_operations", OPERATIONS_UNKNOWN)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    try:
        broker = start_kafka(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with broker:
        doors = Doors(broker.port)
        yield doors
        doors.close()


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_the_recording_is_what_apache_kafka_answers(kafka: Doors, name: str) -> None:
    dialogue = all_asked()[name]
    answers = recorded(dialogue)
    found: list[Difference] = []
    for version in dialogue.versions:
        matrix = play(dialogue, version, kafka)
        for principal in PRINCIPALS:
            place = f"{name} v{version} / {principal}"
            found += differences(place, answers[version][principal], matrix[principal])
    assert not found


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CHANGES)
def test_apache_kafka_answers_so_when_rights_change(kafka: Doors, name: str) -> None:
    assert not list(differences(name, recorded_changes()[name], play_change(name, kafka)))
