"""smq acl, against a broker with an authorizer."""

import json
import os
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from smq.app.process.unix_users import principal_of_user
from smq.cli.verbs import app
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import OPERATIONS_OF, ResourceType
from smq.testing.smq_broker import SmqBroker

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("acl"), SETTINGS) as broker:
        yield broker


def acl(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["acl", *arguments, "--bootstrap", broker.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_rules_are_added_listed_and_removed(broker: SmqBroker) -> None:
    read = "ALLOW User:alice from * READ on TOPIC flights (LITERAL)\n"
    describe = "DENY User:alice from 10.0.0.1 DESCRIBE on GROUP app- (PREFIXED)\n"
    assert acl(broker, "add", "User:alice", "--operation", "read", "--topic", "flights") == read
    denied = "--operation", "describe", "--group", "app-", "--prefixed", "--deny"
    assert acl(broker, "add", "User:alice", *denied, "--host", "10.0.0.1") == describe
    assert acl(broker, "list", "--principal", "User:alice") == read + describe
    assert acl(broker, "list", "--group", "app-1") == describe
    assert acl(broker, "list", "--topic", "other") == ""
    [rule] = json.loads(acl(broker, "list", "--topic", "flights", "--json"))
    assert rule == {
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permission": "ALLOW",
        "resource_type": "TOPIC",
        "name": "flights",
        "pattern_type": "LITERAL",
    }
    assert "no such rule" in acl(
        broker, "remove", "User:alice", "--operation", "write", exit_code=1
    )
    assert acl(broker, "remove", "User:alice", "--topic", "flights") == read
    assert acl(broker, "remove", "User:alice") == describe
    assert acl(broker, "list", "--principal", "User:alice") == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [("\udcff\udcfe", "is no text in UTF-8"), ("x" * 40_000, "has at most 32767 bytes")],
    ids=["no text", "long"],
)
def test_a_name_that_no_rule_can_have_is_refused_with_a_sentence(name: str, said: str) -> None:
    """No broker is asked."""
    read, nobody = ("--operation", "read"), ("--bootstrap", "127.0.0.1:1")
    for arguments in (
        ("add", f"User:{name}", *read, "--topic", "t"),
        ("add", "User:b", *read, "--topic", name),
        ("list", "--principal", f"User:{name}"),
        ("list", "--group", name),
        ("remove", f"User:{name}"),
        ("remove", "User:b", "--host", name),
        ("why", "User:b", *read, "--transactional-id", name),
    ):
        done = CliRunner().invoke(app, ["acl", *arguments, *nobody])
        assert done.exit_code == 1
        assert said in done.output


def test_an_address_is_written_as_clients_addresses_are(broker: SmqBroker) -> None:
    rule = "DENY User:eve from 0:0:0:0:0:0:0:1 READ on TOPIC t (LITERAL)\n"
    denied = "User:eve", "--operation", "read", "--topic", "t", "--host", "::1"
    assert acl(broker, "add", *denied, "--deny") == rule
    assert f"from 0:0:0:0:0:0:0:1: a rule denies it: {rule}" in acl(broker, "why", *denied)
    assert acl(broker, "remove", *denied, "--deny") == rule
    refused = acl(broker, "add", *denied[:-1], "queue.example", exit_code=2)
    assert "is no address" in refused


def test_remove_takes_the_rules_that_add_with_the_same_options_adds(broker: SmqBroker) -> None:
    about = "User:bob", "--operation", "read", "--topic", "pre"
    each_kind = (), ("--prefixed",), ("--deny",), ("--prefixed", "--deny")
    added = [acl(broker, "add", *about, *kind) for kind in each_kind]
    for kind, rule in zip(each_kind, added, strict=True):
        assert acl(broker, "remove", "User:bob", "--topic", "pre", *kind) == rule
        assert rule not in acl(broker, "list", "--principal", "User:bob")
        acl(broker, "add", *about, *kind)
    assert acl(broker, "remove", "User:bob", "--operation", "read") == added[0] + added[1]
    assert acl(broker, "remove", "User:bob", "--deny", "--prefixed") == added[3]
    assert acl(broker, "remove", "User:bob") == added[2]


def test_a_principal_without_rules_has_none_to_remove(broker: SmqBroker) -> None:
    assert acl(broker, "remove", "User:typo", exit_code=1) == (
        "smq: User:typo has no such rule; `smq acl list --principal User:typo` shows its rules\n"
    )


def test_operations_are_offered_only_where_a_resource_has_them(broker: SmqBroker) -> None:
    offered = acl(broker, "add", "User:a", "--operation", "look", "--topic", "t", exit_code=1)
    named = {ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER}
    of_named = set().union(
        *(OPERATIONS_OF[each] for each in named | {ResourceType.TRANSACTIONAL_ID})
    )
    words = offered.partition("there are ")[2].strip().split(", ")
    assert set(words) == {"all", *(each.name.lower() for each in of_named)}


def test_the_rule_that_decides_is_named(broker: SmqBroker) -> None:
    acl(broker, "add", "User:bob", "--operation", "alter-configs", "--topic", "t", "--topic", "*")
    why = "why", "User:bob", "--topic", "t", "--operation"
    assert acl(broker, *why, "describe-configs") == (
        "User:bob may DESCRIBE_CONFIGS TOPIC t from 127.0.0.1: a rule allows it: "
        "ALLOW User:bob from * ALTER_CONFIGS on TOPIC t (LITERAL)\n"
    )
    refused = acl(broker, *why, "read")
    assert refused == (
        "User:bob may not READ TOPIC t from 127.0.0.1: "
        "there are rules for it, and none allows this\n"
    )
    free = acl(broker, "why", "User:bob", "--cluster", "--operation", "alter")
    assert "may ALTER CLUSTER kafka-cluster from 127.0.0.1: there is no rule for it" in free
    admin = acl(broker, "why", "User:ANONYMOUS", "--topic", "t", "--operation", "read", "--json")
    assert json.loads(admin) == {"allowed": True, "reason": "it is a super user", "rule": None}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("add", "alice", "--operation", "read", "--topic", "t"), "'alice' is no principal"),
        (("add", "User:a", "--operation", "look", "--topic", "t"), "there is no operation 'look'"),
        (("add", "User:a", "--operation", "read"), "name an --operation, and a resource"),
        (("why", "User:a", "--operation", "read"), "name one --operation and one resource"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(
    broker: SmqBroker, arguments: tuple[str, ...], sentence: str
) -> None:
    assert sentence in acl(broker, *arguments, exit_code=1)


def test_rules_that_lock_out_everybody_are_mended_by_the_data_directory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with SmqBroker(tmp_path_factory.mktemp("locked"), settings) as locked:
        asked = "add", "User:ANONYMOUS", "--operation", "all", "--cluster"
        assert "needs ALTER on the cluster" in acl(locked, *asked, exit_code=1)
        at = "--data-dir", str(locked.data_dir)
        done = CliRunner().invoke(app, ["acl", *asked, *at])
        assert done.exit_code == 0, done.output
        assert acl(locked, "list") == done.output
        me = principal_of_user(os.getuid())
        why = CliRunner().invoke(app, ["acl", "why", str(me), *asked[2:], *at])
        assert "may ALL CLUSTER kafka-cluster from 127.0.0.1: it is a super user" in why.output


def test_each_command_says_which_rights_it_lacks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with SmqBroker(tmp_path_factory.mktemp("rights"), settings) as broker:
        at = "--data-dir", str(broker.data_dir)
        why = "why", "User:a", "--operation", "read", "--topic", "t"
        assert "needs DESCRIBE on the cluster" in acl(broker, "list", exit_code=1)
        assert "needs ALTER on the cluster" in acl(broker, "remove", "User:a", exit_code=1)
        for right in "describe", "describe-configs":
            needs = "needs DESCRIBE and DESCRIBE_CONFIGS on the cluster"
            assert needs in acl(broker, *why, exit_code=1)
            given = "add", "User:ANONYMOUS", "--operation", right, "--cluster"
            assert CliRunner().invoke(app, ["acl", *given, *at]).exit_code == 0
        assert "User:a may not READ" in acl(broker, *why)
