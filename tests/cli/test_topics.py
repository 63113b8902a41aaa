"""smq topic, against a fake Kafka."""

import json
from collections.abc import Iterator
from functools import partial
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker
from tests.client.fake_kafka import FakeKafka, fake_kafka


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with fake_kafka() as fake:
        yield fake


def topic(kafka: FakeKafka, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["topic", *arguments, "--bootstrap", kafka.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_a_topic_is_created_listed_described_and_deleted(kafka: FakeKafka) -> None:
    assert topic(kafka, "create", "a", "--partitions", "2") == "created a with 2 partitions\n"
    assert topic(kafka, "list").split() == ["a", "2"]
    kafka.topics["a"][1].leader_epoch = 6
    described = topic(kafka, "describe", "a")
    assert [line.split() for line in described.splitlines()[:3]] == [
        ["partition", "leader", "epoch", "first", "offset", "next", "offset"],
        ["0", "1", "-1", "0", "0"],
        ["1", "1", "6", "0", "0"],
    ]
    assert "retention.ms=7" in described
    assert "cleanup.policy" not in described  # It is a default.
    assert topic(kafka, "delete", "a") == "deleted a\n"
    assert topic(kafka, "list") == ""


def test_json_says_the_same(kafka: FakeKafka) -> None:
    created = json.loads(topic(kafka, "create", "a", "--json"))
    assert created == {"topic": "a", "partitions": 1}
    assert json.loads(topic(kafka, "list", "--json")) == [created]
    kafka.topics["a"][0].end, kafka.topics["a"][0].leader_epoch = 7, 3
    described = json.loads(topic(kafka, "describe", "a", "--json"))
    assert described["partitions"] == [
        {"partition": 0, "leader": 1, "leader_epoch": 3, "first_offset": 0, "next_offset": 7}
    ]
    assert described["configs"]["cleanup.policy"] == {"value": "delete", "set": False}
    assert json.loads(topic(kafka, "delete", "a", "--json")) == {"topic": "a"}


def test_internal_topics_are_shown_when_asked_for(kafka: FakeKafka) -> None:
    kafka.add_topic("__offsets")
    assert topic(kafka, "list") == ""
    assert "__offsets" in topic(kafka, "list", "--internal")


@pytest.mark.parametrize("verb", ["describe", "delete"])
def test_a_topic_that_does_not_exist_is_exit_code_1(kafka: FakeKafka, verb: str) -> None:
    output = topic(kafka, verb, "nope", exit_code=1)
    assert output == "smq: there is no topic nope; `smq topic list` shows the topics\n"


@pytest.mark.parametrize("count", ["0", "-1", "2147483648", "99999999999999"])
def test_a_number_of_partitions_that_cannot_be_is_wrong_usage(kafka: FakeKafka, count: str) -> None:
    topic(kafka, "create", "a", "--partitions", count, exit_code=2)
    assert not kafka.topics


def test_a_setting_needs_a_value(kafka: FakeKafka) -> None:
    output = topic(kafka, "create", "a", "--config", "retention.ms", exit_code=1)
    assert output.startswith("smq: --config takes name=value")


def of_broker(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["topic", *arguments, "--bootstrap", broker.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_a_topic_changes_its_settings_and_partitions(smq_session_broker: SmqBroker) -> None:
    name, run = uuid4().hex[:8], partial(of_broker, smq_session_broker)
    run("create", name, "--partitions", "1", "--config", "retention.ms=77")
    changed = run("alter", name, "--config", "segment.ms=60000", "--unset", "retention.ms")
    assert changed == f"{name}: segment.ms=60000\n{name}: retention.ms has its default\n"
    described = json.loads(run("describe", name, "--json"))["configs"]
    assert described["segment.ms"] == {"value": "60000", "set": True}
    assert not described["retention.ms"]["set"]
    assert run("add-partitions", name, "2") == f"{name} has 3 partitions now\n"
    assert len(json.loads(run("describe", name, "--json"))["partitions"]) == 3


def test_a_change_that_cannot_be_is_a_sentence(smq_session_broker: SmqBroker) -> None:
    name, run = uuid4().hex[:8], partial(of_broker, smq_session_broker, exit_code=1)
    of_broker(smq_session_broker, "create", name)
    assert "name what to change" in run("alter", name)
    assert "retention.ms" in run("alter", name, "--config", "retention.ms=often")
    assert "no.such" in run("alter", name, "--config", "no.such=1")
    for verb in (["alter", "--unset", "retention.ms"], ["add-partitions"], ["trim"]):
        more = {"add-partitions": ["1"], "trim": ["--before", "end"]}.get(verb[0], [])
        assert "there is no topic nope" in run(verb[0], "nope", *verb[1:], *more)


def test_offsets_show_the_ends_the_lag_and_where_a_reader_would_start(
    smq_session_broker: SmqBroker,
) -> None:
    name, run = uuid4().hex[:8], partial(of_broker, smq_session_broker)
    run("create", name, "--partitions", "1")
    with smq_session_broker.connect() as client, client.producer() as producer:
        for _ in range(5):
            producer.send(name, b"value")
    heads, row = run("offsets", name).splitlines()
    assert heads.split()[-2:] == ["lag", "start"]
    assert row.split() == ["0", "0", "5", "5", "-", "-", "0"]
    at_two = run("offsets", name, "--type", "exact-offset", "--at", "2", "--group", "g", "--json")
    [facts] = json.loads(at_two)["partitions"]
    assert (facts["high_water"], facts["committed"], facts["start"]) == (5, None, 2)
    far = run("offsets", name, "--type", "exact-offset", "--at", "9")
    assert "offset 9 is out of range: the partition has 0 to 5" in far
    no_type = of_broker(smq_session_broker, "offsets", name, "--type", "first", exit_code=1)
    assert "--type takes resume-or-earliest, reset-to-earliest" in no_type


def test_a_topic_is_trimmed(smq_session_broker: SmqBroker) -> None:
    name, run = uuid4().hex[:8], partial(of_broker, smq_session_broker)
    run("create", name, "--partitions", "2")
    with smq_session_broker.connect() as client, client.producer() as producer:
        for value in range(5):
            producer.send(name, b"value", partition=value % 2)
    assert (
        run("trim", name, "--before", "2", "--partition", "0") == f"{name}-0 begins at offset 2\n"
    )
    trimmed = json.loads(run("trim", name, "--before", "end", "--json"))
    assert trimmed == {"topic": name, "first_offsets": {"0": 3, "1": 2}}
    too_far = of_broker(smq_session_broker, "trim", name, "--before", "99", exit_code=1)
    assert too_far == "smq: partition 0 has no offset 99\n"
    wrong = of_broker(smq_session_broker, "trim", name, "--before", "soon", exit_code=1)
    assert "--before takes an offset or `end`" in wrong
