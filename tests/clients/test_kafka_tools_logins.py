"""Apache Kafka's command-line tools log in: they manage rules, users and quotas, and are refused
what their user may not do."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from smq.testing.smq_broker import SmqBroker
from tests.broker import guarded
from tests.broker.users import add_users
from tests.clients.kafka_tools import Toolbox

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

ADMIN, USER, NEW = "admin", "alice", "new"
PASSWORD = "a pencil"
CONFIGS = "kafka.admin.ConfigCommand"


class People(NamedTuple):
    """The same tools, by those who use them."""

    admin: Toolbox
    user: Toolbox
    new: Toolbox  # Who has no credential yet.


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    directory = tmp_path_factory.mktemp("tools")
    settings = guarded.SETTINGS | {"super.users": f"User:ANONYMOUS;User:{ADMIN}"}
    with (
        SmqBroker(directory / "b", settings, listeners={"ASKS": "SASL_PLAINTEXT"}) as broker,
        Toolbox(broker) as tools,
    ):
        add_users(broker.bootstrap, {ADMIN: PASSWORD, USER: PASSWORD})
        address = guarded.address_of(broker)
        files = [properties(directory, each) for each in (ADMIN, USER, NEW)]
        yield People(*(tools.logged_in(address, each) for each in files))


def properties(directory: Path, user: str) -> Path:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path = directory / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="{user}" password="{PASSWORD}";\n'
    )
    return path


def acls(tools: Toolbox, *arguments: str) -> str:
    return tools.run("AclCommand", *arguments)


def test_rules_are_added_listed_and_removed(people: People) -> None:
    admin, user = people.admin, people.user
    named = ("--topic", "one", "--allow-principal", f"User:{USER}", "--operation", "Describe")
    acls(admin, "--add", *named)
    rule = f"(principal=User:{USER}, host=*, operation=DESCRIBE, permissionType=ALLOW)"
    assert rule in acls(admin, "--list", "--topic", "one")
    admin.topics("--create", "--topic", "one", "--partitions", "1")
    assert user.topics("--list").split() == ["one"]
    acls(admin, "--remove", "--force", *named)
    assert rule not in acls(admin, "--list")
    assert user.topics("--list").split() == []


def test_a_producer_of_topics_by_their_prefix_writes_until_its_rules_go(people: People) -> None:
    admin, user = people.admin, people.user
    prefix = ("--topic", "mine-", "--resource-pattern-type", "prefixed")
    whom = ("--producer", "--allow-principal", f"User:{USER}")
    acls(admin, "--add", *prefix, *whom)
    seen = acls(admin, "--list", "--topic", "mine-1", "--resource-pattern-type", "match")
    assert "patternType=PREFIXED" in seen
    assert all(f"operation={each}," in seen for each in ("WRITE", "DESCRIBE", "CREATE"))
    user.topics("--create", "--topic", "mine-1", "--partitions", "1")
    user.produce("mine-1", 3)
    acls(admin, "--remove", "--force", *prefix, *whom)
    said = user.refused(
        *("ConsoleProducer", "--topic", "mine-1", "--sync", "--timeout", "0"),
        given="one more\n",
    )
    assert "AuthorizationException" in said
    assert admin.offsets("mine-1", "latest") == "mine-1:0:3"


def test_users_are_added_described_and_deleted(people: People) -> None:
    admin, new = people.admin, people.new
    name = ("--entity-type", "users", "--entity-name", NEW)
    assert "invalid credentials" in new.refused("TopicCommand", "--list")
    given = f"SCRAM-SHA-256=[iterations=4096,password={PASSWORD}]"
    admin.configs("--alter", *name, "--add-config", given)
    assert "SCRAM-SHA-256=iterations=4096" in admin.configs("--describe", *name)
    assert new.topics("--list").split() == []
    admin.configs("--alter", *name, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in admin.configs("--describe", *name)
    assert "invalid credentials" in new.refused("TopicCommand", "--list")


def test_the_quotas_of_a_user_change(people: People) -> None:
    name, rate = ("--entity-type", "users", "--entity-name", USER), "producer_byte_rate=1000000"
    people.admin.configs("--alter", *name, "--add-config", rate)
    assert f"{rate}.0" in people.admin.configs("--describe", *name)
    people.admin.configs("--alter", *name, "--delete-config", "producer_byte_rate")
    assert rate not in people.admin.configs("--describe", *name)


def test_a_user_without_rights_to_the_cluster_changes_nothing_of_it(people: People) -> None:
    admin, user = people.admin, people.user
    name = ("--entity-type", "users", "--entity-name", USER)
    rules, settings = acls(admin, "--list"), admin.configs("--describe", *name)
    every = ("--cluster", "--operation", "All", "--allow-principal", f"User:{USER}")
    for refused in (
        user.refused("AclCommand", "--add", *every),
        user.refused("AclCommand", "--list"),
        user.refused(CONFIGS, "--alter", *name, "--add-config", "producer_byte_rate=9"),
        user.refused(CONFIGS, "--alter", *name, "--add-config", "SCRAM-SHA-512=[password=mine]"),
        user.refused("TopicCommand", "--create", "--topic", "another"),
    ):
        assert "uthorization" in refused
    assert acls(admin, "--list") == rules
    assert admin.configs("--describe", *name) == settings
    assert "another" not in admin.topics("--list").split()
