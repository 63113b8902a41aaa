"""Access rules and users as librdkafka's admin client makes, lists and deletes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, admin

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.testing.smq_broker import SmqBroker

confluent: Any = admin  # Its annotations are narrower than what it takes.
pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",  # Whoever comes by the listener without a login.
    "shards": "2",
}
EVERY = confluent.AclBindingFilter(
    confluent.ResourceType.ANY,
    None,
    confluent.ResourcePatternType.ANY,
    None,
    None,
    confluent.AclOperation.ANY,
    confluent.AclPermissionType.ANY,
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS) as broker:
        yield broker


def test_rules_outlive_the_broker_s_processes_until_they_are_deleted(broker: SmqBroker) -> None:
    rules = {
        confluent.AclBinding(
            kind,
            name,
            how,
            "User:alice",
            "*",
            confluent.AclOperation.READ,
            confluent.AclPermissionType.ALLOW,
        )
        for kind, name, how in (
            (confluent.ResourceType.TOPIC, "flights", confluent.ResourcePatternType.LITERAL),
            (confluent.ResourceType.TOPIC, "fl", confluent.ResourcePatternType.PREFIXED),
            (confluent.ResourceType.GROUP, "*", confluent.ResourcePatternType.LITERAL),
        )
    }
    client = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in client.create_acls(list(rules)).values():
        created.result(30)
    assert set(client.describe_acls(EVERY).result(30)) == rules
    broker.kill("coordinator")
    assert set(client.describe_acls(EVERY).result(60)) == rules
    [deleted] = client.delete_acls([EVERY]).values()
    assert set(deleted.result(30)) == rules
    assert client.describe_acls(EVERY).result(30) == []


def test_a_user_has_credentials_until_they_are_deleted(broker: SmqBroker) -> None:
    client = confluent.AdminClient({"bootstrap.servers": broker.bootstrap})
    info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_512, 8192)
    given = confluent.UserScramCredentialUpsertion("alice", info, b"secret")
    client.alter_user_scram_credentials([given])["alice"].result(30)
    [found] = (
        client.describe_user_scram_credentials(["alice"])["alice"].result(30).scram_credential_infos
    )
    assert (found.mechanism, found.iterations) == (confluent.ScramMechanism.SCRAM_SHA_512, 8192)
    gone = confluent.UserScramCredentialDeletion("alice", confluent.ScramMechanism.SCRAM_SHA_512)
    client.alter_user_scram_credentials([gone])["alice"].result(30)
    with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
        client.describe_user_scram_credentials(["alice"])["alice"].result(30)
