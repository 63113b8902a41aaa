"""smq config list, against a broker."""

import json
from uuid import uuid4

from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker


def run(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["config", *arguments, "--bootstrap", broker.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_settings_say_where_they_are_from(smq_session_broker: SmqBroker) -> None:
    topic = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1, {"retention.ms": "77"})
    facts = json.loads(run(smq_session_broker, "list", "--topic", topic, "--json"))
    assert facts["retention.ms"]["value"] == "77"
    assert facts["retention.ms"]["source"] == "topic"
    assert facts["cleanup.policy"]["source"] == "default"
    only = run(smq_session_broker, "list", "--topic", topic, "--only-set")
    assert "retention.ms=77  (topic)\n" in only
    assert "cleanup.policy" not in only
    broker = json.loads(run(smq_session_broker, "list", "--json"))
    assert broker["data.dir"]["value"] == str(smq_session_broker.data_dir)


def test_a_topic_that_does_not_exist_is_a_sentence(smq_session_broker: SmqBroker) -> None:
    output = run(smq_session_broker, "list", "--topic", "no-such", exit_code=1)
    assert output == "smq: there is no topic no-such; `smq topic list` shows the topics\n"


def test_settings_of_a_topic_are_set_and_unset(smq_session_broker: SmqBroker) -> None:
    topic = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1)
    said = run(smq_session_broker, "set", "retention.ms=77", "segment.ms=9000", "--topic", topic)
    assert said == f"{topic}: retention.ms=77\n{topic}: segment.ms=9000\n"
    only = run(smq_session_broker, "list", "--topic", topic, "--only-set")
    assert "segment.ms=9000  (topic)\n" in only
    said = run(smq_session_broker, "unset", "retention.ms", "--topic", topic, "--json")
    assert json.loads(said) == {"topic": topic, "unset": ["retention.ms"]}
    assert "retention.ms" not in run(smq_session_broker, "list", "--topic", topic, "--only-set")


def test_config_history_names_who_changed_a_setting_and_its_values(
    smq_session_broker: SmqBroker,
) -> None:
    topic = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1, {"retention.ms": "77"})
    run(smq_session_broker, "set", "retention.ms=78", "segment.ms=9000", "--topic", topic)
    run(smq_session_broker, "unset", "retention.ms", "--topic", topic)
    run(smq_session_broker, "set", "segment.ms=9000", "--topic", topic)  # It was that.
    where = ["config", "history", "--data-dir", str(smq_session_broker.data_dir)]
    done = CliRunner().invoke(app, [*where, "--topic", topic, "--json"])
    changes = json.loads(done.output)
    assert [(each["name"], each["before"], each["after"]) for each in changes] == [
        ("retention.ms", "78", None),
        ("segment.ms", None, "9000"),
        ("retention.ms", "77", "78"),
    ]
    assert {each["client_id"] for each in changes} == {"smq"}
    assert all("127.0.0.1" in each["client_host"] for each in changes)
    output = CliRunner().invoke(app, [*where, "--count", "1"]).output
    assert f"topic {topic}: retention.ms: 78 -> its default, by smq at" in output
    nothing = CliRunner().invoke(app, ["config", "history", "--data-dir", "/no/such"])
    assert nothing.exit_code == 1
    assert "name the broker's directory with --data-dir" in nothing.output


def test_of_several_settings_all_are_set_or_none(smq_session_broker: SmqBroker) -> None:
    topic = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1)
    wrong = ("set", "segment.ms=9000", "retention.ms=never", "--topic", topic)
    assert "retention.ms" in run(smq_session_broker, *wrong, exit_code=1)
    assert "segment.ms" not in run(smq_session_broker, "list", "--topic", topic, "--only-set")


def test_broker_settings_are_set_unset_and_listed(smq_session_broker: SmqBroker) -> None:
    said = run(smq_session_broker, "set", "filer.sweep.ms=7200000", "--json")
    assert json.loads(said) == {"broker": "all", "set": {"filer.sweep.ms": "7200000"}}
    said = run(smq_session_broker, "set", "max.connections=5000", "--broker", "1")
    assert said == "broker 1: max.connections=5000\n"
    assert run(smq_session_broker, "list", "--broker", "all") == (
        "filer.sweep.ms=7200000  (changed for all brokers)\n"
        "min.insync.replicas=1  (changed for all brokers, needs a restart)\n"  # As Kafka shows it.
    )
    own = run(smq_session_broker, "list", "--broker", "1", "--only-set")
    assert "max.connections=5000  (changed for this broker)\n" in own
    refused = run(smq_session_broker, "set", "shards=3", exit_code=1)
    assert "shards" in refused
    assert "needs a restart" in refused
    both = run(smq_session_broker, "set", "a=1", "--topic", "t", "--broker", "1", exit_code=1)
    assert both == "smq: --topic and --broker: name one of them\n"
    wrong = run(smq_session_broker, "list", "--broker", "one", exit_code=1)
    assert wrong == "smq: --broker takes a number or `all`, not 'one'\n"
    run(smq_session_broker, "unset", "max.connections", "--broker", "1")
    said = run(smq_session_broker, "unset", "filer.sweep.ms")
    assert said == "all brokers: filer.sweep.ms has again what the broker was started with\n"
    where = ["config", "history", "--data-dir", str(smq_session_broker.data_dir)]
    output = CliRunner().invoke(app, [*where, "--broker", "all", "--count", "1"]).output
    assert "all brokers: filer.sweep.ms: 7200000 -> unset, by smq at" in output
