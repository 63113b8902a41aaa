"""Each change of the coordinator's is told once, and what is only checked or refused is not.

What fails is told among the accesses, so that nobody without a right can fill the file of acts.
"""

import json
from typing import Any
from uuid import UUID

import pytest

from gateway.apis.acts import ACTS, NAMES_MAX, listed
from gateway.apis.table import APIS, Where
from smq.security.acls import Operation
from smq.security.audit import OF_ONE_MAX
from smq.wire.generated import (
    alter_client_quotas as quotas,
    alter_configs as replaced,
    alter_user_scram_credentials as users,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_topics,
    incremental_alter_configs as changed,
    metadata,
    offset_commit,
    offset_delete,
)
from tests.gateway.apis.rights import limited, super_user
from tests.gateway.coordinator_bench import CoordinatorBench

CHANGES = {Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CREATE, Operation.DELETE}


@pytest.fixture
def asker(bench: CoordinatorBench) -> CoordinatorBench:
    """A coordinator with a topic, a group and an authorizer, whom a super user asks."""
    bench.coordinator.topics.ensure(["t"], bench.now)
    super_user(bench)
    partition = offset_commit.OffsetCommitRequestPartition(committed_offset=1)
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=[topic]
    )
    bench.ask("OffsetCommit", 9, request)
    return bench


def acts(bench: CoordinatorBench) -> list[tuple[Any, ...]]:
    fields = "api", "operation", "resource_type", "resource", "error", "detail"
    found = [json.loads(line) for line in bench.coordinator.access.audit.take_acts()]
    assert all(each["event"] == "act" for each in found)
    assert {each["principal"] for each in found} <= {"User:root"}
    assert {each["host"] for each in found} <= {"10.0.0.9"}
    return [tuple(each.get(field) for field in fields) for each in found]


def failed_acts(bench: CoordinatorBench) -> list[tuple[Any, ...]]:
    lines = map(json.loads, bench.coordinator.access.audit.take_accesses(bench.now))
    fields = "api", "operation", "resource_type", "resource", "error"
    return [
        tuple(line.get(field) for field in fields)
        for line in lines
        if line["event"] == "failed act"
    ]


def test_every_api_that_changes_something_for_others_is_written() -> None:
    changing = {
        api.key
        for api in APIS
        if api.where is Where.COORDINATOR
        and any(right.operation in CHANGES for right in api.rights)
    }
    assert set(ACTS) == changing


def test_topics_are_written(asker: CoordinatorBench) -> None:
    new = [
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("a", "t")
    ]
    asker.ask("CreateTopics", 7, create_topics.CreateTopicsRequest(topics=new, validate_only=True))
    assert acts(asker) == []
    asker.ask("CreateTopics", 7, create_topics.CreateTopicsRequest(topics=new))
    more = [create_partitions.CreatePartitionsTopic(name="a", count=3, assignments=None)]
    asker.ask("CreatePartitions", 3, create_partitions.CreatePartitionsRequest(topics=more))
    gone = [delete_topics.DeleteTopicState(name="a")]
    asker.ask("DeleteTopics", 6, delete_topics.DeleteTopicsRequest(topics=gone))
    *made, deleted = acts(asker)
    assert made == [
        ("CreateTopics", "CREATE", "TOPIC", "a", None, None),
        ("CreatePartitions", "ALTER", "TOPIC", "a", None, "partitions 3"),
    ]
    assert failed_acts(asker) == [
        ("CreateTopics", "CREATE", "TOPIC", "t", "TOPIC_ALREADY_EXISTS"),
    ]
    assert deleted[:5] == ("DeleteTopics", "DELETE", "TOPIC", "a", None)


def test_a_topic_that_a_metadata_request_creates_is_written(asker: CoordinatorBench) -> None:
    topics = [metadata.MetadataRequestTopic(name=name) for name in ("t", "new")]
    request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    asker.ask("Metadata", 12, request)
    assert acts(asker) == [("Metadata", "CREATE", "TOPIC", "new", None, None)]


def test_configs_are_written_by_their_names_and_no_values(asker: CoordinatorBench) -> None:
    old = replaced.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[replaced.AlterableConfig(name="retention.ms", value="4711")],
    )
    asker.ask("AlterConfigs", 2, replaced.AlterConfigsRequest(resources=[old]))
    new = changed.AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[changed.AlterableConfig(name="group.max.size", value="4711")],
    )
    asker.ask("IncrementalAlterConfigs", 1, changed.IncrementalAlterConfigsRequest(resources=[new]))
    assert "4711" not in str(asker.coordinator.access.audit.acts)
    assert acts(asker) == [
        ("AlterConfigs", "ALTER_CONFIGS", "TOPIC", "t", None, "retention.ms"),
        ("IncrementalAlterConfigs", "ALTER_CONFIGS", "BROKER", None, None, "group.max.size"),
    ]


def test_rules_are_written_in_words(asker: CoordinatorBench) -> None:
    rules = [
        create_acls.AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:bob",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in ("a", "")
    ]
    asker.ask("CreateAcls", 3, create_acls.CreateAclsRequest(creations=rules))
    every = delete_acls.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    asker.ask("DeleteAcls", 3, delete_acls.DeleteAclsRequest(filters=[every]))
    words = "ALLOW User:bob READ from *, LITERAL"
    assert acts(asker) == [
        ("CreateAcls", "CREATE_ACL", "TOPIC", "a", None, words),
        ("DeleteAcls", "DELETE_ACL", "TOPIC", "a", None, words),
    ]
    assert failed_acts(asker) == [("CreateAcls", "CREATE_ACL", "TOPIC", None, "INVALID_REQUEST")]


def test_users_and_quotas_are_written(asker: CoordinatorBench) -> None:
    upsertion = users.ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"s" * 10, salted_password=b"p" * 32
    )
    asker.ask(
        "AlterUserScramCredentials",
        0,
        users.AlterUserScramCredentialsRequest(upsertions=[upsertion]),
    )
    deletion = users.ScramCredentialDeletion(name="bob", mechanism=1)
    asker.ask(
        "AlterUserScramCredentials",
        0,
        users.AlterUserScramCredentialsRequest(deletions=[deletion]),
    )

    limit = quotas.QuotaEntry(
        entity=[quotas.QuotaEntity(entity_type="client-id", entity_name=None)],
        ops=[quotas.QuotaOp(key="producer_byte_rate", value=1000.0)],
    )
    asker.ask("AlterClientQuotas", 1, quotas.AlterClientQuotasRequest(entries=[limit]))
    altered, deleted, quota = acts(asker)
    assert altered[1:5] == ("ALTER", "USER", "bob", None)
    assert deleted[1:5] == ("DELETE", "USER", "bob", None)
    assert quota == (
        "AlterClientQuotas",
        "ALTER_CONFIGS",
        "CLIENT_QUOTA",
        "client-id=default",
        None,
        "producer_byte_rate=1000.0",
    )


def test_groups_and_their_offsets_are_written(asker: CoordinatorBench) -> None:
    partitions = [
        offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in (9, 0, 0)
    ]
    topic = offset_delete.OffsetDeleteRequestTopic(name="t", partitions=partitions)
    request = offset_delete.OffsetDeleteRequest(group_id="g", topics=[topic, topic])
    asker.ask("OffsetDelete", 0, request)
    asker.ask("DeleteGroups", 2, delete_groups.DeleteGroupsRequest(groups_names=["g", "none"]))
    assert acts(asker) == [
        ("OffsetDelete", "DELETE_OFFSETS", "GROUP", "g", None, "t: 0"),
        ("DeleteGroups", "DELETE", "GROUP", "g", None, None),
    ]
    assert failed_acts(asker) == [
        ("OffsetDelete", "DELETE_OFFSETS", "GROUP", "g", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("DeleteGroups", "DELETE", "GROUP", "none", "GROUP_ID_NOT_FOUND"),
    ]


MANY = 300
NAMES = [f"n{number}" for number in range(MANY)]
UNKNOWN_IDS = delete_topics.DeleteTopicsRequest(
    topics=[delete_topics.DeleteTopicState(topic_id=UUID(int=number + 1)) for number in range(MANY)]
)
NAMES_AND_IDS = delete_topics.DeleteTopicsRequest(
    topics=[
        delete_topics.DeleteTopicState(name=name, topic_id=UUID(int=number + 1))
        for number, name in enumerate(NAMES)
    ]
)
NEITHER = delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState()] * MANY)
NAMES_TWICE = delete_topics.DeleteTopicsRequest(
    topics=[delete_topics.DeleteTopicState(name=name) for name in NAMES * 2]
)
CREATED_TWICE = create_topics.CreateTopicsRequest(
    topics=[
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in NAMES * 2
    ]
)
GROWN_TWICE = create_partitions.CreatePartitionsRequest(
    topics=[
        create_partitions.CreatePartitionsTopic(name=name, count=3, assignments=None)
        for name in NAMES * 2
    ]
)


def replacing(kind: int, names: list[str], keys: tuple[str, ...] = ("a",)) -> Any:
    configs = [replaced.AlterableConfig(name=key, value="1") for key in keys]
    return replaced.AlterConfigsRequest(
        resources=[
            replaced.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            for name in names
        ]
    )


def changing(kind: int, names: list[str], keys: tuple[str, ...] = ("a",)) -> Any:
    configs = [changed.AlterableConfig(name=key, value="1") for key in keys]
    return changed.IncrementalAlterConfigsRequest(
        resources=[
            changed.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            for name in names
        ]
    )


BEFORE_A_RIGHT_IS_ASKED = {
    "unknown ids": ("DeleteTopics", 6, UNKNOWN_IDS, "UNKNOWN_TOPIC_ID"),
    "names and ids": ("DeleteTopics", 6, NAMES_AND_IDS, "INVALID_REQUEST"),
    "neither": ("DeleteTopics", 6, NEITHER, "INVALID_REQUEST"),
    "deleted twice": ("DeleteTopics", 6, NAMES_TWICE, "INVALID_REQUEST"),
    "created twice": ("CreateTopics", 7, CREATED_TWICE, "INVALID_REQUEST"),
    "grown twice": ("CreatePartitions", 3, GROWN_TWICE, "INVALID_REQUEST"),
    "replaced twice": ("AlterConfigs", 2, replacing(2, NAMES * 2), "INVALID_REQUEST"),
    "an unknown type": ("AlterConfigs", 2, replacing(99, NAMES), "INVALID_REQUEST"),
    "levels": ("AlterConfigs", 2, replacing(8, NAMES), "INVALID_REQUEST"),
    "keys twice": ("AlterConfigs", 2, replacing(2, NAMES, ("a", "a")), "INVALID_REQUEST"),
    "changed twice": ("IncrementalAlterConfigs", 1, changing(2, NAMES * 2), "INVALID_REQUEST"),
    "another unknown type": (
        *("IncrementalAlterConfigs", 1, changing(99, NAMES), "INVALID_REQUEST"),
    ),
}


@pytest.mark.parametrize("case", BEFORE_A_RIGHT_IS_ASKED)
def test_a_client_without_rights_adds_no_act_and_few_failed_acts(
    bench: CoordinatorBench, case: str
) -> None:
    name, version, request, error = BEFORE_A_RIGHT_IS_ASKED[case]
    limited(bench, "mallory")
    audit = bench.coordinator.access.audit
    for _ in range(3):
        bench.ask(name, version, request)
        audit.invariants()
    assert audit.acts == []
    lines = list(map(json.loads, audit.take_accesses(bench.now)))
    failed = [line for line in lines if line["event"] == "failed act"]
    assert 1 <= len(failed) <= 2 * OF_ONE_MAX, "one at once, and one with the count"
    assert {(line["api"], line["error"]) for line in failed} == {(name, error)}
    assert len(lines) - len(failed) <= 1, "others"


def test_a_request_in_parts_is_written_once(asker: CoordinatorBench) -> None:
    new = [
        create_topics.CreatableTopic(name=f"n{number}", num_partitions=1, replication_factor=1)
        for number in range(300)
    ]
    asker.ask("CreateTopics", 7, create_topics.CreateTopicsRequest(topics=new))
    assert sorted(act[3] for act in acts(asker)) == sorted(each.name for each in new)


def test_rules_of_a_request_in_parts_are_written_with_their_own_words(
    asker: CoordinatorBench,
) -> None:
    rules = [
        create_acls.AclCreation(
            resource_type=2,
            resource_name=f"n{number}",
            resource_pattern_type=3,
            principal=f"User:u{number}",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(900)
    ]
    asker.ask("CreateAcls", 3, create_acls.CreateAclsRequest(creations=rules))
    told = acts(asker)
    assert len(told) == len(rules)
    assert all(f"User:u{act[3][1:]} " in act[5] for act in told)


def test_a_long_list_is_written_by_its_first_words() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(map(str, range(NAMES_MAX + 5))).endswith("19 and 5 more")
