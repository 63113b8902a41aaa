"""smq copy, against brokers."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.records import copying
from smq.cli.verbs import app
from smq.client.client import Client
from smq.client.kafka import offsets
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import delete_records
from smq.testing.smq_broker import SmqBroker


def fill(client: Client, topic: str, **settings: Any) -> None:
    """Two partitions with records in several batches, some compressed."""
    client.create_topic(topic, 2, settings)
    for compression in ("none", "zstd"):
        with client.producer(compression=compression) as producer:
            for number in range(50):
                producer.send(
                    topic,
                    None if number == 7 else b"%d" % number,
                    key=b"k%d" % number,
                    headers=[("h", b"%d" % number)],
                    timestamp_ms=1000 + number,
                    partition=number % 2,
                )


def records(client: Client, topic: str) -> list[tuple[Any, ...]]:
    with client.consumer(topic, start="earliest") as consumer:
        found = [
            (
                each.partition,
                each.offset,
                each.timestamp_ms,
                each.key,
                None if each.value is None else bytes(each.value),
                each.headers,
            )
            for each in consumer.read_until(consumer.find("latest"))
        ]
    return sorted(found, key=lambda each: each[:2])


def copy(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    options = ["--bootstrap", broker.bootstrap]
    done = CliRunner().invoke(app, ["copy", *arguments, *options])
    assert done.exit_code == exit_code, done.output
    return done.output


@pytest.fixture
def topic(smq_session_broker: SmqBroker) -> str:
    name = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        fill(client, name)
    return name


def test_a_copy_has_the_same_records(smq_session_broker: SmqBroker, topic: str) -> None:
    facts = json.loads(copy(smq_session_broker, topic, f"{topic}-to", "--json"))
    assert (facts["records"], facts["partitions"]) == (100, 2)
    with smq_session_broker.connect() as client:
        assert records(client, f"{topic}-to") == records(client, topic)


def test_offsets_are_kept_or_the_copy_ends_before_one_is_not(
    smq_session_broker: SmqBroker, topic: str
) -> None:
    copy(smq_session_broker, topic, f"{topic}-to", "--keep-offsets")
    with smq_session_broker.connect() as client:
        assert records(client, f"{topic}-to") == records(client, topic)
    said = copy(
        smq_session_broker, topic, f"{topic}-2", "--keep-offsets", "--from", "5", exit_code=1
    )
    assert "would not keep their offsets" in said.replace("\n", " ")
    with smq_session_broker.connect() as client:
        assert records(client, f"{topic}-2") == []


def test_it_goes_to_another_broker_and_back(
    smq_session_broker: SmqBroker, smq_broker: SmqBroker, topic: str
) -> None:
    here, there = smq_session_broker, smq_broker
    copy(here, topic, topic, "--to", there.bootstrap)
    copy(there, topic, f"{topic}-back", "--to", here.bootstrap)
    with here.connect() as client:
        assert records(client, f"{topic}-back") == records(client, topic)


def test_the_brokers_times_become_the_records_own(smq_session_broker: SmqBroker) -> None:
    topic = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        fill(client, topic, **{"message.timestamp.type": "LogAppendTime"})
        copy(smq_session_broker, topic, f"{topic}-to")
        assert records(client, f"{topic}-to") == records(client, topic)


def test_it_begins_at_a_place(smq_session_broker: SmqBroker, topic: str) -> None:
    copy(smq_session_broker, topic, f"{topic}-to", "--from", "33")
    with smq_session_broker.connect() as client:
        expected = [each[2:] for each in records(client, topic) if each[1] >= 33]
        assert [each[2:] for each in records(client, f"{topic}-to")] == expected


@pytest.mark.parametrize("is_state_old", [False, True])
def test_a_copy_that_was_interrupted_goes_on_where_it_was(
    smq_session_broker: SmqBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_state_old: bool,
) -> None:
    state, command = tmp_path / "state", [topic, f"{topic}-to", "--state", str(tmp_path / "state")]
    send = copying.CopyRequests.send
    sent: list[object] = []

    def fails(self: copying.CopyRequests, topic: str, batches: list[copying.Sent]) -> None:
        if len(sent) == 1:
            raise KeyboardInterrupt
        sent.append(batches)
        send(self, topic, batches)

    with monkeypatch.context() as patch:
        patch.setattr(copying.CopyRequests, "send", fails)
        copy(smq_session_broker, *command, exit_code=130)
    if is_state_old:  # As after a power loss: only the state before the first record is left.
        saved = json.loads(state.read_text())
        saved["partitions"] = {number: [0, 0, 0, []] for number in saved["partitions"]}
        state.write_text(json.dumps(saved))
    copy(smq_session_broker, *command)
    with smq_session_broker.connect() as client:
        assert records(client, f"{topic}-to") == records(client, topic)
        copy(smq_session_broker, *command)  # Nothing is left to copy.
        assert records(client, f"{topic}-to") == records(client, topic)
        with client.producer() as producer:
            producer.send(topic, b"later", partition=1)
        copy(smq_session_broker, *command)
        assert records(client, f"{topic}-to")[-1][4] == b"later"


def test_records_that_somebody_else_has_written_are_noticed(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    command = [topic, f"{topic}-to", "--state", str(tmp_path / "state")]
    copy(smq_session_broker, *command)
    with smq_session_broker.connect() as client, client.producer() as producer:
        producer.send(f"{topic}-to", b"not yours", partition=0)
        producer.send_batch(
            topic, {"value": [b"a", b"b"], "partition": [0, 0], "timestamp": [1, 1]}
        )
        producer.flush()
    output = copy(smq_session_broker, *command, exit_code=1)
    assert f"somebody else has written to partition 0 of {topic}-to" in output


def test_a_copy_that_is_impossible_exits_with_a_sentence(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.write_text("{}")
    with smq_session_broker.connect() as client:
        client.create_topic(f"{topic}-small", 1)
    for arguments, sentence in [
        (["no-such", "x"], "there is no topic no-such"),
        ([topic, topic], "source and destination are the same topic"),
        ([topic, f"{topic}-small"], "has 1 partitions and"),
        ([topic, f"{topic}-x", "--state", str(state)], "is not the state of a copy"),
        ([topic, f"{topic}-x", "--state", str(tmp_path / "no/such")], "cannot be written"),
        ([topic, f"{topic}-x", "--from", "soon"], "--from takes earliest"),
    ]:
        assert sentence in copy(smq_session_broker, *arguments, exit_code=1)


def test_the_state_of_another_copy_is_refused(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    copy(smq_session_broker, topic, f"{topic}-a", "--state", state)
    output = copy(smq_session_broker, topic, f"{topic}-b", "--state", state, exit_code=1)
    assert "is the state of another copy" in output


def test_a_destination_that_was_created_again_is_noticed(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    command = [topic, f"{topic}-to", "--state", str(tmp_path / "state")]
    copy(smq_session_broker, *command)
    with smq_session_broker.connect() as client, Cluster(smq_session_broker.bootstrap):
        client.delete_topic(f"{topic}-to")
    assert "when it is created again" in copy(smq_session_broker, *command, exit_code=1)


def test_a_source_that_was_created_again_is_noticed(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    """Data fault 8, its kind: the new topic's first records were passed over, as those of the old
    one had been copied."""
    command = [topic, f"{topic}-to", "--state", str(tmp_path / "state")]
    copy(smq_session_broker, *command)
    with smq_session_broker.connect() as client:
        client.delete_topic(topic)
        fill(client, topic)
    assert "when it is created again" in copy(smq_session_broker, *command, exit_code=1)


def test_a_source_that_is_created_again_meanwhile_ends_the_copy(
    smq_session_broker: SmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 8, its kind: a name outlives its topic. The copy went on in the new one, and said
    that it was done."""
    source, to = (uuid4().hex[:8] for _ in range(2))
    send, sent = copying.CopyRequests.send, 0

    def fill_with(client: Client, value: bytes) -> None:
        client.create_topic(source, 1)
        with client.producer() as producer:
            for _ in range(8):
                producer.send_batch(source, {"value": [value], "partition": [0]}).result(30)

    with smq_session_broker.connect() as client:

        def sends(self: copying.CopyRequests, topic: str, batches: list[copying.Sent]) -> None:
            nonlocal sent
            sent += 1
            if sent == 1:
                client.delete_topic(source)
                fill_with(client, b"new")
            send(self, topic, batches)

        fill_with(client, b"old")
        with monkeypatch.context() as patch:
            patch.setattr(copying, "PARTITION_BYTES", 1)  # A batch with each answer.
            patch.setattr(copying.CopyRequests, "send", sends)
            said = copy(smq_session_broker, source, to, exit_code=1)
        assert f"topic {source} was deleted since the copy began" in " ".join(said.split())
        found = [each[4] for each in records(client, to)]
    assert found == [b"old"] * len(found)
    assert 0 < len(found) < 8


@pytest.mark.parametrize("shows", [True, False])
def test_a_copy_that_was_killed_goes_on_behind_what_it_has_sent(
    smq_session_broker: SmqBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shows: bool,
) -> None:
    """Data fault 24, its kind: the next run counted records, which the source may have lost by
    then. Data fault 8, its kind: it doubled what did not show yet, since a sync was slow."""
    state, command = tmp_path / "state", [topic, f"{topic}-to", "--state", str(tmp_path / "state")]
    send = copying.CopyRequests.send
    kept: list[str] = []

    def sends(self: copying.CopyRequests, topic: str, batches: list[copying.Sent]) -> None:
        kept.append(state.read_text())
        send(self, topic, batches)

    with monkeypatch.context() as patch:
        patch.setattr(copying.CopyRequests, "send", sends)
        copy(smq_session_broker, *command)
    state.write_text(kept[0])
    with smq_session_broker.connect() as client:
        expected = records(client, topic)
        if shows:
            with Cluster(smq_session_broker.bootstrap) as cluster:
                delete_records(cluster, topic, 20)
            copy(smq_session_broker, *command)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(offsets, "resolve", lambda *_: {0: 0, 1: 0})
                copy(smq_session_broker, *command)
        assert records(client, f"{topic}-to") == expected


@pytest.mark.parametrize("more", [5, 50])
def test_a_source_that_was_restored_from_an_older_snapshot_is_noticed(
    tmp_path: Path, smq_session_broker: SmqBroker, more: int
) -> None:
    """Data fault 24, its kind: the next run went on by offset, over a hole."""
    snapshot, restored, to = tmp_path / "snapshot", tmp_path / "restored", uuid4().hex[:8]
    options = ["--to", smq_session_broker.bootstrap, "--state", str(tmp_path / "state")]

    def run(*command: str, exit_code: int = 0) -> str:
        done = CliRunner().invoke(app, [*command])
        assert done.exit_code == exit_code, done.output
        return " ".join(done.output.split())

    def send(broker: SmqBroker, count: int) -> None:
        with broker.connect() as client, client.producer() as producer:
            producer.send_batch("t", {"value": [b"v"] * count, "partition": [0] * count}).result(30)

    with SmqBroker(tmp_path / "source") as source:
        with source.connect() as client:
            client.create_topic("t", 1)
        send(source, 10)
        run("snapshot", str(snapshot), "--data-dir", str(source.data_dir))
        send(source, 10)
        run("copy", "t", to, "--bootstrap", source.bootstrap, *options)
    run("restore", str(snapshot), "--data-dir", str(restored / "data"))
    with SmqBroker(restored) as source:
        send(source, more)
        said = run("copy", "t", to, "--bootstrap", source.bootstrap, *options, exit_code=1)
    assert "it has lost records; copy it to another destination" in said


def test_a_start_beyond_a_partitions_end_is_no_loss(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    command = [topic, f"{topic}-to", "--from", "500", "--state", str(tmp_path / "state")]
    for _ in range(2):
        copy(smq_session_broker, *command)


def test_a_destination_that_takes_less_gets_smaller_batches(smq_session_broker: SmqBroker) -> None:
    """Use fault 4: the answer was MESSAGE_TOO_LARGE, of no record that was named."""
    source, small, tiny = (uuid4().hex[:8] for _ in range(3))
    with smq_session_broker.connect() as client:
        client.create_topic(source, 1)
        client.create_topic(small, 1, {"max.message.bytes": "2000"})
        client.create_topic(tiny, 1, {"max.message.bytes": "500"})
        with client.producer() as producer:
            batch = {"value": [bytes([each]) * 900 for each in range(20)], "partition": [0] * 20}
            producer.send_batch(source, batch).result(30)
        copy(smq_session_broker, source, small)
        assert records(client, small) == records(client, source)
    output = copy(smq_session_broker, source, tiny, exit_code=1)
    assert "refuses the last 1 records of partition 0 before offset 1: MESSAGE_TOO_LARGE" in output


def test_batches_behind_a_refused_one_are_not_appended_and_come_with_the_next_run(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    """Data fault 16: the batches in flight behind it were appended; the next run lost a record."""
    broker, state, sent = smq_session_broker, tmp_path / "state", 16
    for large in (0, 3):  # The first batch of a producer is a case of its own.
        source, to = (uuid4().hex[:8] for _ in range(2))
        with broker.connect() as client, client.producer() as producer:
            client.create_topic(source, 1)
            client.create_topic(to, 1, {"max.message.bytes": "2000"})
            for number in range(sent):
                value = bytes([number]) * (3000 if number == large else 10)
                producer.send(source, value, partition=0).result(30)
        command = [source, to, "--state", str(state)]
        output = copy(broker, *command, exit_code=1)
        assert f"refuses the last 1 records of partition 0 before offset {large + 1}" in output
        with broker.connect() as client:
            assert len(records(client, to)) == large
        options = ["--topic", to, "max.message.bytes=9000", "--bootstrap", broker.bootstrap]
        assert CliRunner().invoke(app, ["config", "set", *options]).exit_code == 0
        copy(broker, *command)
        with broker.connect() as client:
            assert records(client, to) == records(client, source)
        state.unlink()
