"""smq topic, against a fake Kafka."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from smq.app.cli.main import app
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
    described = topic(kafka, "describe", "a")
    assert "retention.ms=7" in described
    assert "cleanup.policy" not in described  # It is a default.
    assert topic(kafka, "delete", "a") == "deleted a\n"
    assert topic(kafka, "list") == ""


def test_json_says_the_same(kafka: FakeKafka) -> None:
    created = json.loads(topic(kafka, "create", "a", "--json"))
    assert created == {"topic": "a", "partitions": 1}
    assert json.loads(topic(kafka, "list", "--json")) == [created]
    kafka.topics["a"][0].end = 7
    described = json.loads(topic(kafka, "describe", "a", "--json"))
    assert described["partitions"] == [
        {"partition": 0, "leader": 1, "first_offset": 0, "next_offset": 7}
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
