"""smq prepare, against data directories."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.credentials import ScramMechanism, credential_of, salted
from smq.store.access import stored
from smq.testing.smq_broker import SmqBroker

READ = {
    "principal": "User:alice",
    "operation": "read",
    "resource_type": "topic",
    "name": "orders",
}


def prepare(*arguments: object, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["prepare", *map(str, arguments)])
    assert done.exit_code == exit_code, done.output
    return done.output


def users_in(directory: Path, begin: str = "", **passwords: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, password in passwords.items():
        (directory / f"{begin}{name}").write_text(password)
    return directory


def rules_in(path: Path, *rules: Any) -> Path:
    path.write_text(json.dumps(rules))
    return path


def passwords_of(data: Path) -> dict[str, set[str]]:
    """Who has which of some passwords, by every mechanism."""
    found: dict[str, set[str]] = {}
    for user, mechanism, keys in stored(data / "store.sqlite").credentials:
        for each in ("first", "second"):
            salted_password = salted(mechanism, each, keys.salt, keys.iterations)
            if credential_of(mechanism, salted_password, keys.salt, keys.iterations) == keys:
                found.setdefault(user, set()).add(each)
    return found


def test_users_and_rules_are_there_before_the_first_start(tmp_path: Path) -> None:
    data = tmp_path / "broker" / "data"
    users = users_in(tmp_path / "users", alice="first\n", bob="second")
    rules = rules_in(tmp_path / "rules", READ, READ | {"permission": "deny", "host": "10.0.0.1"})
    said = prepare("--data-dir", data, "--users", users, "--rules", rules)
    assert said == (
        "alice: the password is set\nbob: the password is set\nrules: 2 added, 0 were there\n"
    )
    assert passwords_of(data) == {"alice": {"first"}, "bob": {"second"}}
    assert len(stored(data / "store.sqlite").credentials) == 2 * len(ScramMechanism)
    with SmqBroker(tmp_path / "broker", {"authorizer.class.name": STANDARD_AUTHORIZER}):
        listed = CliRunner().invoke(app, ["acl", "list", "--json", "--data-dir", str(data)])
        (tmp_path / "listed").write_text(listed.output)
    again = prepare("--data-dir", data, "--rules", tmp_path / "listed")
    assert again == "rules: 0 added, 2 were there\n"


def test_a_second_run_changes_only_what_differs(tmp_path: Path) -> None:
    data, users = tmp_path / "data", users_in(tmp_path / "users", alice="first", bob="first")
    arguments = ("--data-dir", data, "--users", users, "--json")
    prepare(*arguments, "--rules", rules_in(tmp_path / "rules", READ))
    before = stored(data / "store.sqlite")
    lines = (data / "audit" / "acts.log").read_text()
    said = json.loads(prepare(*arguments, "--rules", tmp_path / "rules"))
    assert said == {
        "users": {"alice": "as before", "bob": "as before"},
        "rules": {"added": 0, "there": 1},
    }
    assert stored(data / "store.sqlite") == before
    assert (data / "audit" / "acts.log").read_text() == lines
    users_in(users, alice="second")
    (users / "bob").unlink()
    said = json.loads(prepare(*arguments, "--rules", rules_in(tmp_path / "rules")))
    assert said == {"users": {"alice": "set"}, "rules": {"added": 0, "there": 0}}
    assert passwords_of(data) == {"alice": {"second"}, "bob": {"first"}}
    assert stored(data / "store.sqlite").rules == before.rules


def test_each_change_has_a_line_in_the_audit_log(tmp_path: Path) -> None:
    data, users = tmp_path / "data", users_in(tmp_path / "users", alice="first")
    prepare("--data-dir", data, "--users", users, "--rules", rules_in(tmp_path / "rules", READ))
    told = [json.loads(line) for line in (data / "audit" / "acts.log").read_text().splitlines()]
    assert [(each["operation"], each["resource"]) for each in told] == [
        ("ALTER", "alice"),
        ("CREATE_ACL", "orders"),
    ]
    assert told[1]["detail"] == "ALLOW User:alice READ from *, LITERAL"
    assert {each["api"] for each in told} == {"smq prepare"}


def test_hidden_files_and_those_that_begin_otherwise_are_no_users(tmp_path: Path) -> None:
    """As Kubernetes mounts a secret, and as systemd names the credentials of a unit."""
    mounted = users_in(tmp_path / "mounted", "..data-", alice="first")
    (mounted / "alice").symlink_to("..data-alice")
    prepare("--data-dir", tmp_path / "one", "--users", mounted)
    assert passwords_of(tmp_path / "one") == {"alice": {"first"}}
    loaded = users_in(tmp_path / "loaded", "users_", bob="second")
    (loaded / "key").write_text("another")
    prepare("--data-dir", tmp_path / "two", "--users", loaded / "users_")
    assert passwords_of(tmp_path / "two") == {"bob": {"second"}}


def test_a_file_that_is_wrong_leaves_the_directory_alone(tmp_path: Path) -> None:
    data, users = tmp_path / "data", users_in(tmp_path / "users", alice="first", bob="")
    assert "a password is not empty" in prepare("--data-dir", data, "--users", users, exit_code=1)
    rules = rules_in(tmp_path / "rules", READ, READ | {"operation": "fly"})
    (users / "bob").write_text("first")
    prepare("--data-dir", data, "--users", users, "--rules", rules, exit_code=1)
    assert not data.exists()


def test_a_pipe_or_a_device_among_the_files_is_refused(tmp_path: Path) -> None:
    data, users = tmp_path / "data", users_in(tmp_path / "users", alice="first")
    (users / "bob").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "rules")
    for option, path in (("--users", users / "bob"), ("--rules", tmp_path / "rules")):
        given = users if option == "--users" else path
        said = prepare("--data-dir", data, option, given, exit_code=1)
        assert f"{option}: {path} cannot be read: it is no file, but a pipe or a device" in said
    assert not data.exists()


@pytest.mark.parametrize("field", ["name", "principal"])
def test_a_text_that_no_answer_can_hold_is_refused(field: str, tmp_path: Path) -> None:
    for text in ("x" * 40_000, "\ud800"):
        rules = rules_in(tmp_path / "rules", READ | {field: f"User:{text}"})
        assert "--rules" in prepare("--data-dir", tmp_path / "d", "--rules", rules, exit_code=1)
    users = users_in(tmp_path / "users", **{"\udcff": "first"})
    assert "no text" in prepare("--data-dir", tmp_path / "d", "--users", users, exit_code=1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (READ | {"operation": "any"}, "operation is one of ALL, READ, "),
        (READ | {"pattern_type": "match"}, "pattern_type is one of LITERAL, PREFIXED"),
        (READ | {"resource_type": "any"}, "resource_type is one of TOPIC, "),
        (READ | {"permission": "any"}, "permission is one of DENY, ALLOW"),
        (READ | {"name": ""}, "a name is not empty"),
        (READ | {"resource_type": "cluster"}, "the cluster's is kafka-cluster"),
        (READ | {"host": "queue.example"}, "is no address of IPv4 or IPv6"),
        (READ | {"principal": "alice"}, "alice"),
        (READ | {"topic": "orders"}, "has not the fields of a rule"),
        ({"principal": "User:alice"}, "has not the fields of a rule"),
        (READ | {"name": 5}, "an object of texts"),
        ([], "is no rule"),
    ],
    ids=str,
)
def test_a_rule_that_cannot_be_is_refused(row: Any, words: str, tmp_path: Path) -> None:
    rules = rules_in(tmp_path / "rules", row)
    assert words in prepare("--data-dir", tmp_path / "d", "--rules", rules, exit_code=1)


@pytest.mark.parametrize("text", ["", "{}", "[", "[" * 100_000])
def test_a_file_that_is_no_list_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(text)
    said = prepare("--data-dir", tmp_path / "d", "--rules", tmp_path / "rules", exit_code=1)
    assert said.startswith(f"smq: --rules: {tmp_path / 'rules'}: ")


def test_files_are_needed(tmp_path: Path) -> None:
    at = "--data-dir", tmp_path / "data"
    assert "name --users, --rules or both" in prepare(*at, exit_code=1)
    assert "cannot be read" in prepare(*at, "--rules", tmp_path / "none", exit_code=1)
    assert "cannot be read" in prepare(*at, "--users", tmp_path / "none/users_", exit_code=1)
    (tmp_path / "users.txt").write_text("of a mistyped name")
    assert "cannot be read" in prepare(*at, "--users", tmp_path / "users", exit_code=1)
    assert "names no file" in prepare(*at, "--users", tmp_path / "none_", exit_code=1)


def test_a_directory_that_is_served_is_refused(tmp_path: Path) -> None:
    users = users_in(tmp_path / "users", alice="first")
    with SmqBroker(tmp_path / "broker") as broker:
        refused = prepare("--data-dir", broker.data_dir, "--users", users, exit_code=1)
    assert f"served by process {broker_pid(refused)}" in refused
    assert stored(broker.data_dir / "store.sqlite").credentials == []


def broker_pid(sentence: str) -> int:
    [pid] = [int(word) for word in sentence.replace(";", " ").split() if word.isdigit()]
    assert pid != os.getpid()
    return pid
