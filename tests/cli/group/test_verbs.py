"""smq group, against a broker."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker


class Committed:
    """A topic `t` of 2 partitions with 10 records each, and a group that has committed 4 and 6."""

    def __init__(self, broker: SmqBroker) -> None:
        self.broker = broker
        name = uuid4().hex[:8]
        self.topic, self.group = f"t-{name}", f"g-{name}"
        with broker.connect() as client:
            client.create_topic(self.topic, 2)
            with client.producer() as producer:
                for number in range(20):
                    producer.send(
                        self.topic, b"v", partition=number % 2, timestamp_ms=1000 * (number // 2)
                    )
            with client.consumer(group=self.group) as consumer:
                consumer.assign([(self.topic, 0), (self.topic, 1)])
                consumer.commit({(self.topic, 0): 4, (self.topic, 1): 6})

    def run(self, *arguments: str, exit_code: int = 0) -> str:
        options = ["--bootstrap", self.broker.bootstrap]
        done = CliRunner().invoke(app, ["group", *arguments, *options])
        assert done.exit_code == exit_code, done.output
        return done.output

    def committed(self) -> list[int]:
        facts = json.loads(self.run("describe", self.group, "--json"))
        return [each["offset"] for each in facts["offsets"]]


@pytest.fixture
def committed(smq_session_broker: SmqBroker) -> Committed:
    return Committed(smq_session_broker)


def test_groups_are_listed_and_described_with_their_lag(committed: Committed) -> None:
    assert committed.group in committed.run("list")
    listed = {each["group"]: each for each in json.loads(committed.run("list", "--json"))}
    assert listed[committed.group]["state"] == "Empty"
    facts = json.loads(committed.run("describe", committed.group, "--json"))
    assert facts["lag"] == 10
    assert [each["lag"] for each in facts["offsets"]] == [6, 4]
    assert f"{committed.topic:<28} {0:>9} {4:>14} {10:>14}" in committed.run(
        "describe", committed.group
    )


def test_members_are_shown_with_their_partitions_and_forbid_a_reset(committed: Committed) -> None:
    group = committed.group
    with (
        committed.broker.connect() as client,
        client.consumer(committed.topic, group=group) as consumer,
    ):
        while not consumer.assignment():
            consumer.poll(0.1)
        facts = json.loads(committed.run("describe", group, "--json"))
        assert facts["state"] == "Stable"
        (member,) = facts["members"]
        assert [each["partition"] for each in member["partitions"]] == [0, 1]
        assert {each["member_id"] for each in facts["offsets"]} == {member["member_id"]}
        for verb in (["reset", group, "--to", "earliest"], ["delete", group]):
            output = committed.run(*verb, exit_code=1)
            assert f"group {group} has members; stop its consumers first" in output
    assert committed.committed() == [4, 6]


@pytest.mark.parametrize(
    ("way", "after"),
    [
        (["--to", "earliest"], [0, 0]),
        (["--to", "latest"], [10, 10]),
        (["--to", "3"], [3, 3]),
        (["--to", "99"], [10, 10]),
        (["--to", "@4001"], [5, 5]),
        (["--by", "-5"], [0, 1]),
        (["--by", "2"], [6, 8]),
        (["--duration", "1h"], [10, 10]),
        (["--to", "1", "--partition", "1"], [4, 1]),
    ],
)
def test_offsets_are_reset(committed: Committed, way: list[str], after: list[int]) -> None:
    planned = json.loads(committed.run("reset", committed.group, *way, "--dry-run", "--json"))
    assert planned["dry_run"]
    assert committed.committed() == [4, 6]
    assert "committed" in committed.run("reset", committed.group, *way)
    assert committed.committed() == after
    moved = {each["partition"]: each["offset"] for each in planned["offsets"]}
    assert moved == {partition: after[partition] for partition in moved}


def test_a_plan_can_be_kept_in_a_file_and_committed_later(
    committed: Committed, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(committed.run("reset", committed.group, "--to", "2", "--dry-run", "--json"))
    committed.run("reset", committed.group, "--from-file", str(plan))
    assert committed.committed() == [2, 2]
    plan.write_text(f"{committed.topic},1,7\n")
    committed.run("reset", committed.group, "--from-file", str(plan))
    assert committed.committed() == [2, 7]


def test_a_group_that_has_committed_nothing_is_reset_by_naming_a_topic(
    committed: Committed,
) -> None:
    fresh = f"{committed.group}-fresh"
    refused = committed.run("reset", fresh, "--to", "earliest", exit_code=1)
    assert "has committed nothing there; name a --topic" in refused
    committed.run("reset", fresh, "--to", "5", "--topic", committed.topic)
    facts = json.loads(committed.run("describe", fresh, "--json"))
    assert [each["offset"] for each in facts["offsets"]] == [5, 5]
    committed.run("delete", fresh)
    assert fresh not in committed.run("list")


def test_offsets_of_a_topic_are_forgotten(committed: Committed) -> None:
    verb = ("delete-offsets", committed.group, "--topic", committed.topic)
    with (
        committed.broker.connect() as client,
        client.consumer([committed.topic], group=committed.group) as consumer,
    ):
        consumer.poll(10)
        assert "stop them first" in committed.run(*verb, exit_code=1)
    said = committed.run(*verb)
    assert said == f"deleted 2 offsets of {committed.group}\n"
    assert committed.committed() == []
    assert json.loads(committed.run(*verb, "--json"))["deleted"] == []
    assert "there is no group" in committed.run("delete-offsets", "no", "--topic", "t", exit_code=1)


def test_a_wrong_group_argument_exits_with_a_sentence(committed: Committed, tmp_path: Path) -> None:
    group, file = committed.group, tmp_path / "offsets"
    file.write_text("no offsets")
    for arguments, sentence in [
        (["reset", group], "name one of --to, --by, --duration, --from-file; 0 are given"),
        (["reset", group, "--to", "1", "--by", "1"], "2 are given"),
        (["reset", group, "--to", "soon"], "--to takes earliest"),
        (["reset", group, "--duration", "soon"], "a duration is a number and ms, s, m, h or d"),
        (["reset", group, "--from-file", str(tmp_path / "none")], "cannot be read"),
        (["reset", group, "--from-file", str(file)], "a line is topic,partition,offset"),
        (["reset", group, "--to", "1", "--topic", "no-such"], "there is no topic no-such"),
        (["describe", "no-such"], "there is no group no-such; `smq group list`"),
        (["delete", "no-such"], "there is no group no-such"),
    ]:
        assert sentence in committed.run(*arguments, exit_code=1)


def test_an_unreachable_broker_is_reported_without_a_traceback() -> None:
    options: list[Any] = ["group", "list", "--bootstrap", "127.0.0.1:1"]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 1
    assert "start one with `smq serve`" in done.output
