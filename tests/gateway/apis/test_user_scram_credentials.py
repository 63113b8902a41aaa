"""Users and their credentials: what is not among the dialogues with Kafka (tests/oracle)."""

import pytest

from smq.model.errors import ErrorCode
from smq.security.credentials import ScramMechanism, credential_of
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from smq.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.gateway.apis.rights import limited, super_user
from tests.gateway.coordinator_bench import CoordinatorBench

E = ErrorCode
SHA_256 = ScramMechanism.SCRAM_SHA_256
DENIED = E.CLUSTER_AUTHORIZATION_FAILED


def given(name: str, salted_password: bytes = b"p") -> AlterUserScramCredentialsRequest:
    one = ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=salted_password
    )
    return AlterUserScramCredentialsRequest(upsertions=[one])


def codes(bench: CoordinatorBench, request: AlterUserScramCredentialsRequest) -> list[int]:
    answer = bench.ask("AlterUserScramCredentials", 0, request)
    return [each.error_code for each in answer.results]


def test_a_user_has_the_keys_of_its_password(bench: CoordinatorBench) -> None:
    assert codes(bench, given("alice")) == [E.NONE]
    assert bench.coordinator.access.credentials() == {
        "alice": {SHA_256: credential_of(SHA_256, b"p", b"s", 4096)}
    }
    gone = ScramCredentialDeletion(name="alice", mechanism=1)
    assert codes(bench, AlterUserScramCredentialsRequest(deletions=[gone])) == [E.NONE]
    assert bench.coordinator.access.credentials() == {}


def test_no_names_ask_for_every_user(bench: CoordinatorBench) -> None:
    codes(bench, given("bob"))
    codes(bench, given("alice"))
    for request in (
        DescribeUserScramCredentialsRequest(users=None),
        DescribeUserScramCredentialsRequest(users=[]),
    ):
        answer = bench.ask("DescribeUserScramCredentials", 0, request)
        assert [each.user for each in answer.results] == ["alice", "bob"]


def test_a_user_of_the_host_has_no_password_here(bench: CoordinatorBench) -> None:
    assert codes(bench, given("unix/alice")) == [E.UNACCEPTABLE_CREDENTIAL]


@pytest.mark.parametrize("who", ["nobody", "describes"])
def test_a_user_without_rights_changes_no_credential(bench: CoordinatorBench, who: str) -> None:
    limited(bench, who, "DESCRIBE CLUSTER kafka-cluster" if who == "describes" else "")
    assert codes(bench, given("mallory")) == [DENIED]
    assert bench.coordinator.access.credentials() == {}
    named = DescribeUserScramCredentialsRequest(users=[UserName(name="a")])
    answer = bench.ask("DescribeUserScramCredentials", 0, named)
    described = who == "describes"
    assert answer.error_code == (E.NONE if described else DENIED)
    expected = ("a", E.RESOURCE_NOT_FOUND) if described else ("", DENIED)
    assert [(each.user, each.error_code) for each in answer.results] == [expected]


def test_a_super_user_changes_credentials(bench: CoordinatorBench) -> None:
    super_user(bench)
    assert codes(bench, given("alice")) == [E.NONE]
