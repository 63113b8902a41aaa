"""Access rules by Kafka's APIs; what Kafka answers was asked of Kafka 4.3.1."""

from typing import Any

import pytest

from gateway.apis import acls
from smq.model.errors import ErrorCode, PeerError
from smq.wire.generated.create_acls import AclCreation, CreateAclsRequest
from smq.wire.generated.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from smq.wire.generated.describe_acls import DescribeAclsRequest
from tests.gateway.apis.rights import limited, super_user
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode
TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED = 3, 4
READ, ALLOW, ANY = 3, 3, 1
VERSIONS = range(1, 4)


EVERY = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


def creation(**other: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "a",
        "resource_pattern_type": LITERAL,
        "principal": "User:x",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**fields | other)


def every(**other: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**{**EVERY, **other})


def filtered(**other: Any) -> DeleteAclsFilter:
    return DeleteAclsFilter(**{**EVERY, **other})


def create(bench: CoordinatorBench, *rows: AclCreation, version: int = 3) -> list[int]:
    answer = bench.ask("CreateAcls", version, CreateAclsRequest(creations=list(rows)))
    return [each.error_code for each in answer.results]


def names(bench: CoordinatorBench, request: DescribeAclsRequest) -> list[tuple[str, int]]:
    answer = bench.ask("DescribeAcls", 3, request)
    assert answer.error_code == E.NONE
    return [(each.resource_name, len(each.acls)) for each in answer.resources]


@pytest.mark.parametrize("version", VERSIONS)
def test_security_is_disabled_without_an_authorizer(bench: CoordinatorBench, version: int) -> None:
    described = bench.ask("DescribeAcls", version, every())
    assert (described.error_code, described.resources) == (E.SECURITY_DISABLED, [])
    assert create(bench, creation(), creation(), version=version) == [E.SECURITY_DISABLED] * 2
    deleted = bench.ask("DeleteAcls", version, DeleteAclsRequest(filters=[filtered()] * 2))
    assert [each.error_code for each in deleted.filter_results] == [E.SECURITY_DISABLED] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rule_is_described_as_it_was_created_until_it_is_deleted(
    bench: CoordinatorBench, version: int
) -> None:
    super_user(bench)
    rows = [
        creation(),
        creation(host="10.0.0.1"),
        creation(resource_pattern_type=PREFIXED),
        creation(resource_type=CLUSTER, resource_name="kafka-cluster", operation=9),
    ]
    assert create(bench, *rows, rows[0], version=version) == [E.NONE] * 5
    answer = bench.ask("DescribeAcls", version, every())
    assert [
        creation(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission_type,
        )
        for each in answer.resources
        for rule in each.acls
    ] == rows
    both = [filtered(host_filter="*"), filtered(resource_name_filter="a")]
    deleted = bench.ask("DeleteAcls", version, DeleteAclsRequest(filters=both))
    assert [each.error_code for each in deleted.filter_results] == [E.NONE] * 2
    assert [len(each.matching_acls) for each in deleted.filter_results] == [3, 3]
    assert names(bench, every()) == []


def test_rules_are_described_in_parts(bench: CoordinatorBench) -> None:
    super_user(bench)
    for first in range(0, 2500, 500):
        rows = [creation(principal=f"User:{each}") for each in range(first, first + 500)]
        assert create(bench, *rows) == [E.NONE] * 500
    assert create(bench, creation(resource_name="b")) == [E.NONE]
    assert names(bench, every()) == [("a", 2500), ("b", 1)]


@pytest.mark.parametrize(
    "bad",
    [
        {"resource_type": 99},
        {"resource_type": -1},
        {"resource_type": ANY},
        {"resource_pattern_type": 9},
        {"resource_pattern_type": 2},
        {"operation": 99},
        {"operation": ANY},
        {"permission_type": 4},
        {"permission_type": ANY},
        {"resource_name": ""},
        {"resource_type": CLUSTER, "resource_name": "other"},
        {"principal": "x"},
        {"principal": ""},
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_others_are_created(
    bench: CoordinatorBench, bad: dict[str, object]
) -> None:
    super_user(bench)
    assert create(bench, creation(**bad), creation(resource_name="good")) == [
        E.INVALID_REQUEST,
        E.NONE,
    ]
    assert names(bench, every()) == [("good", 1)]


def test_kinds_that_are_none_find_nothing_and_delete_nothing(bench: CoordinatorBench) -> None:
    super_user(bench)
    create(bench, creation())
    assert names(bench, every(operation=99)) == []
    filters = [filtered(operation=99), filtered(resource_name_filter="good")]
    deleted = bench.ask("DeleteAcls", 3, DeleteAclsRequest(filters=filters))
    assert [each.error_code for each in deleted.filter_results] == [E.INVALID_REQUEST, E.NONE]
    assert names(bench, every()) == [("a", 1)]


def test_filters_that_find_too_much_together_delete_nothing(
    bench: CoordinatorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "FOUND_MAX", 3)
    super_user(bench)
    create(bench, *(creation(resource_name=name) for name in "abcd"))
    asked = DeleteAclsRequest(filters=[filtered(), filtered()])
    deleted = bench.ask("DeleteAcls", 3, asked)
    assert [each.error_code for each in deleted.filter_results] == [E.INVALID_REQUEST] * 2
    assert len(names(bench, every())) == 4
    deleted = bench.ask("DeleteAcls", 3, DeleteAclsRequest(filters=[filtered()]))
    assert len(deleted.filter_results[0].matching_acls) == 4
    assert names(bench, every()) == []


def test_an_unknown_kind_closes_the_connection(bench: CoordinatorBench) -> None:
    super_user(bench)
    with pytest.raises(PeerError, match="Operation is UNKNOWN"):
        create(bench, creation(operation=0))
    with pytest.raises(PeerError, match="PatternType is UNKNOWN"):
        names(bench, every(pattern_type_filter=0))


@pytest.mark.parametrize("count", [1, acls.PART_CREATED, acls.PART_RULES + 1])
def test_a_rule_of_an_unknown_kind_leaves_those_before_it_uncreated(
    bench: CoordinatorBench, count: int
) -> None:
    super_user(bench)
    rows = [creation(resource_name=f"n{number}") for number in range(count)]
    with pytest.raises(PeerError, match="Operation is UNKNOWN"):
        create(bench, *rows, creation(operation=0))
    assert names(bench, every()) == []
    assert create(bench, *rows, creation(resource_name="")) == [E.NONE] * count + [
        E.INVALID_REQUEST
    ]
    assert len(names(bench, every())) == count


@pytest.mark.parametrize(
    ("right", "may_describe", "may_alter"),
    [
        ("", False, False),
        ("DESCRIBE CLUSTER kafka-cluster", True, False),
        ("ALTER CLUSTER kafka-cluster", True, True),
        ("ALL TOPIC a", False, False),
    ],
)
def test_rules_are_for_those_who_may_alter_the_cluster(
    bench: CoordinatorBench, right: str, *, may_describe: bool, may_alter: bool
) -> None:
    def code(*, may: bool) -> ErrorCode:
        return E.NONE if may else E.CLUSTER_AUTHORIZATION_FAILED

    limited(bench, "alice", right)
    described = bench.ask("DescribeAcls", 3, every())
    assert described.error_code == code(may=may_describe)
    assert bool(described.error_message) != may_describe
    assert create(bench, creation(), creation()) == [code(may=may_alter)] * 2
    filters = [filtered(principal_filter="User:x")]
    deleted = bench.ask("DeleteAcls", 3, DeleteAclsRequest(filters=filters))
    assert [each.error_code for each in deleted.filter_results] == [code(may=may_alter)]
    assert len(deleted.filter_results[0].matching_acls) == may_alter
