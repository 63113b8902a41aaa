"""The audit log of a broker with users and rules: each act once, with who did it; what is refused;
and nothing that a name could forge."""

import json
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.broker.guarded import address_of, config_of, guarded_broker

FORGED = 'g\n{"event": "act", "principal": "User:root"}\r\x1b[2J\u2028\u202e\x85'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with guarded_broker(tmp_path_factory.mktemp("audited")) as broker:
        yield broker


def lines_of(broker: SmqBroker, name: str) -> list[dict[str, Any]]:
    """What the log has, newest last; each line is whole, and shows as it is."""
    directory = broker.data_dir / "audit"
    found = []
    for path in sorted(directory.glob(f"{name}*"), key=lambda path: path.name, reverse=True):
        for line in path.read_text().split("\n")[:-1]:
            assert line.isprintable()
            found.append(json.loads(line))
    return found


def acts(broker: SmqBroker) -> list[dict[str, Any]]:
    return [line for line in lines_of(broker, "acts.log") if line["event"] == "act"]


def accesses(broker: SmqBroker, event: str) -> list[dict[str, Any]]:
    return [line for line in lines_of(broker, "access.log") if line["event"] == event]


def smq(broker: SmqBroker, words: str) -> None:
    done = CliRunner().invoke(
        app,
        [*shlex.split(words), "--bootstrap", broker.bootstrap],
        env={"SMQ_USER_PASSWORD": "pencil"},
    )
    assert done.exit_code == 0, done.output


ACTS = {
    "topic create {t} --partitions 1": ("CreateTopics", "CREATE", "TOPIC", "{t}"),
    "topic add-partitions {t} 2": ("CreatePartitions", "ALTER", "TOPIC", "{t}"),
    "topic alter {t} --config retention.ms=60000": (
        *("IncrementalAlterConfigs", "ALTER_CONFIGS", "TOPIC", "{t}"),
    ),
    "topic trim {t} --before 0 --partition 0": (
        *("DeleteRecords", "DELETE_RECORDS", "TOPIC", "{t}"),
    ),
    "acl add User:zoe --operation read --topic {t}": ("CreateAcls", "CREATE_ACL", "TOPIC", "{t}"),
    "acl remove User:zoe --topic {t}": ("DeleteAcls", "DELETE_ACL", "TOPIC", "{t}"),
    "user add {t} --mechanism SCRAM-SHA-256": (
        *("AlterUserScramCredentials", "ALTER", "USER", "{t}"),
    ),
    "user remove {t}": ("AlterUserScramCredentials", "DELETE", "USER", "{t}"),
    "group reset {t} --topic {t} --to earliest": (),  # It commits, as any consumer does.
    "group delete-offsets {t} --topic {t}": ("OffsetDelete", "DELETE_OFFSETS", "GROUP", "{t}"),
    "topic delete {t}": ("DeleteTopics", "DELETE", "TOPIC", "{t}"),
}
"""Verbs, and the act that each is: of the topic, user or group `t`."""
FIELDS = "api", "operation", "resource_type", "resource"


def test_each_act_has_one_line_with_its_principal(broker: SmqBroker) -> None:
    wanted = [
        tuple(each.format(t="told") for each in (*act, "User:ANONYMOUS")) for act in ACTS.values()
    ]
    wanted = [each for each in wanted if len(each) > 1]

    def told() -> list[tuple[str, ...]]:
        mine = [line for line in acts(broker) if line["resource"] == "told"]
        assert all(line["host"] == "127.0.0.1" and "error" not in line for line in mine)
        return [tuple(line[field] for field in (*FIELDS, "principal")) for line in mine]

    for words in ACTS:
        smq(broker, words.format(t="told"))
    eventually(lambda: len(told()) >= len(wanted), "acts")  # A shard's come a moment later.
    assert sorted(told()) == sorted(wanted)


def test_a_denial_has_a_line_with_principal_operation_and_resource(broker: SmqBroker) -> None:
    reader = AdminClient({"bootstrap.servers": address_of(broker), **config_of("reader")})
    with pytest.raises(KafkaException):
        reader.create_topics([NewTopic("mine", 1)])["mine"].result()

    def told() -> list[dict[str, Any]]:
        return [each for each in accesses(broker, "denied") if each.get("resource") == "mine"]

    eventually(told, "a denial")
    line = told()[0]
    assert line["principal"] == "User:reader"
    assert line["listener"] == "ASKS"
    assert [line[field] for field in FIELDS] == ["CreateTopics", "CREATE", "TOPIC", "mine"]
    assert not [each for each in acts(broker) if each.get("resource") == "mine"]


def test_a_forged_name_begins_no_line(broker: SmqBroker) -> None:
    for properties in ({"bootstrap.servers": broker.bootstrap}, config_of("reader")):
        admin = AdminClient({"bootstrap.servers": address_of(broker), **properties})
        with pytest.raises(KafkaException):
            admin.delete_consumer_groups([FORGED])[FORGED].result()

    def denied() -> list[dict[str, Any]]:
        return [each for each in accesses(broker, "denied") if each.get("resource") == FORGED]

    eventually(denied, "a denial")
    assert denied()[0]["principal"] == "User:reader"
    [failed] = [each for each in accesses(broker, "failed act") if each["resource"] == FORGED]
    assert (failed["principal"], failed["error"]) == ("User:ANONYMOUS", "GROUP_ID_NOT_FOUND")
    assert not [each for each in acts(broker) if each.get("resource") == FORGED]


def test_a_flood_of_denials_is_bounded_and_ends_no_act(broker: SmqBroker) -> None:
    reader = AdminClient({"bootstrap.servers": address_of(broker), **config_of("reader")})
    names = [f"flood{number}" for number in range(500)]
    before = len(acts(broker))

    def flood() -> list[dict[str, Any]]:
        return [each for each in accesses(broker, "denied") if "flood" in each["resource"]]

    for _ in range(4):
        for done in reader.create_topics([NewTopic(name, 1) for name in names]).values():
            with pytest.raises(KafkaException):
                done.result()
    eventually(flood, "denials")
    assert len(flood()) <= 3 * 50, "of one principal, in a minute or two"
    assert len(acts(broker)) == before


def test_a_login_is_written_with_its_user_and_a_failed_one_with_its_address(
    broker: SmqBroker,
) -> None:
    wrong = {**config_of("writer"), "sasl.password": "no", "sasl.username": "sesame"}
    for properties in (config_of("writer"), wrong):
        admin = AdminClient({"bootstrap.servers": address_of(broker), **properties})
        try:
            admin.list_topics(timeout=3)
        except KafkaException:
            assert properties is wrong

    def has_logged_in() -> bool:
        return "User:writer" in {each["principal"] for each in accesses(broker, "login")}

    eventually(lambda: has_logged_in() and accesses(broker, "failed login"), "logins")
    failed = accesses(broker, "failed login")[-1]
    assert (failed["host"], failed["listener"], failed["detail"]) == (
        *("127.0.0.1", "ASKS"),
        "SCRAM-SHA-256",
    )
    assert "sesame" not in str(failed)


def test_the_files_are_the_brokers_alone(broker: SmqBroker) -> None:
    directory = broker.data_dir / "audit"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {0o600}


def test_a_start_and_a_stop_have_a_line(tmp_path: Path) -> None:
    with SmqBroker(tmp_path / "told", {"audit.log.enable": "true"}) as broker:
        eventually(lambda: lines_of(broker, "acts.log"), "a start")
        broker.stop()
        events = [each["event"] for each in lines_of(broker, "acts.log")]
        assert events == ["start", "stop"]


def test_without_users_there_is_no_audit_log_unless_it_is_asked_for(tmp_path: Path) -> None:
    with SmqBroker(tmp_path / "silent") as broker:
        with broker.connect() as client:
            client.create_topic("orders", 1)
        assert not (broker.data_dir / "audit").exists()
