"""Each change of the coordinator's is told once, and what is only checked or refused is not."""

import json
from typing import Any

import pytest

from gateway.apis.acts import ACTS, NAMES_MAX, listed
from gateway.apis.table import APIS, Where
from smq.security.acls import Operation
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
from tests.gateway.apis.rights import super_user
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
        ("CreateTopics", "CREATE", "TOPIC", "t", "TOPIC_ALREADY_EXISTS", None),
        ("CreatePartitions", "ALTER", "TOPIC", "a", None, "partitions 3"),
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
        ("CreateAcls", "CREATE_ACL", "TOPIC", None, "INVALID_REQUEST", words),
        ("DeleteAcls", "DELETE_ACL", "TOPIC", "a", None, words),
    ]


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
    partition = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    topic = offset_delete.OffsetDeleteRequestTopic(name="t", partitions=[partition])
    asker.ask("OffsetDelete", 0, offset_delete.OffsetDeleteRequest(group_id="g", topics=[topic]))
    asker.ask("DeleteGroups", 2, delete_groups.DeleteGroupsRequest(groups_names=["g", "none"]))
    assert acts(asker) == [
        ("OffsetDelete", "DELETE_OFFSETS", "GROUP", "g", None, "t: 0"),
        ("DeleteGroups", "DELETE", "GROUP", "g", None, None),
        ("DeleteGroups", "DELETE", "GROUP", "none", "GROUP_ID_NOT_FOUND", None),
    ]


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
