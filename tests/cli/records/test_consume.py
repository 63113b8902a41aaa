"""smq consume, against a fake Kafka."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.client import Client, connect
from smq.client.consuming.consumer import Consumer
from smq.client.kafka.offsets import Start
from smq.client.names import TopicPartition
from smq.testing.smq_broker import SmqBroker
from tests.app.smq_command import SMQ
from tests.client.fake_kafka import FakeKafka, fake_kafka

DEADLINE_SECONDS = 20


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with fake_kafka() as fake:
        fake.add_topic("a", 2)
        with connect(fake.bootstrap) as client, client.producer() as producer:
            for number in range(4):
                producer.send(
                    "a",
                    b"v%d" % number,
                    key=b"k",
                    headers=[("h", b"%d" % number), (b"\xff", None)],
                    timestamp_ms=1000 * number,
                    partition=0,
                )
            producer.send("a", None, timestamp_ms=9000, partition=1)
        yield fake


def consume(kafka: FakeKafka, *arguments: str, exit_code: int = 0) -> bytes:
    done = CliRunner().invoke(app, ["consume", "a", *arguments, "--bootstrap", kafka.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.stdout_bytes + done.stderr_bytes


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("--partition", "-1"),
        ("--partition", "99999999999999"),
        ("--count", "-1"),
        ("--count", "9" * 23),
    ],
)
def test_numbers_that_cannot_be_are_wrong_usage(kafka: FakeKafka, option: str, number: str) -> None:
    consume(kafka, option, number, exit_code=2)


def test_values_are_lines(kafka: FakeKafka) -> None:
    assert sorted(consume(kafka).split(b"\n")) == [b"", b"", b"v0", b"v1", b"v2", b"v3"]
    assert consume(kafka, "--partition", "0", "--count", "2") == b"v0\nv1\n"


def test_keys_and_headers_stand_before_values(kafka: FakeKafka) -> None:
    output = consume(kafka, "--from", "3", "--partition", "0", "--keys", "--headers")
    assert output == b"h=3,\xff=\tk\tv3\n"


def test_records_are_chosen_by_key_value_and_header(kafka: FakeKafka) -> None:
    assert consume(kafka, "--value", "v[12]") == b"v1\nv2\n"
    assert consume(kafka, "--key", "^k$", "--header", "h=3") == b"v3\n"
    assert consume(kafka, "--key", "none") == b""
    assert consume(kafka, "--value", "v", "--count", "1") == b"v0\n"


def test_a_template_and_chosen_fields_print_a_record_otherwise(kafka: FakeKafka) -> None:
    one = ("--partition", "0", "--count", "1")
    output = consume(kafka, *one, "--format", r"{partition}:{offset}\t{time} {key}={value} {{}}")
    assert output == b"0:0\t1970-01-01T00:00:00.000+00:00 k=v0 {}\n"
    output = consume(kafka, *one, "--fields", "offset,key,value.a")
    assert json.loads(output) == {"offset": 0, "key": "k", "value.a": None}


def test_stats_count_instead_of_printing(kafka: FakeKafka) -> None:
    counts = json.loads(consume(kafka, "--stats", "--json"))
    assert (counts["records"], counts["nulls"], counts["bytes"]) == (5, 1, 12)
    assert counts["partitions"][0] == {
        "partition": 0,
        "records": 4,
        "bytes": 12,
        "nulls": 0,
        "first_offset": 0,
        "last_offset": 3,
        "first_timestamp": 0,
        "last_timestamp": 3000,
    }
    assert consume(kafka, "--stats").splitlines()[-1].split() == [b"all", b"5", b"12", b"1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--value", "("], b"is no regular expression"),
        (["--format", "{nothing}"], b"there is no field 'nothing'"),
        (["--format", "{"], b"smq: "),
        (["--format", "{key}", "--fields", "key"], b"exclude each other"),
        (["--fields", "offset.x"], b"there is no field"),
        (["--header", "x"], b"--header takes name=value"),
    ],
)
def test_wrong_selections_are_refused_with_a_sentence(
    kafka: FakeKafka, arguments: list[str], sentence: bytes
) -> None:
    assert sentence in consume(kafka, *arguments, exit_code=1)


def test_from_and_until_are_places(kafka: FakeKafka) -> None:
    chosen = ("--partition", "0")
    assert consume(kafka, *chosen, "--from", "1", "--until", "3") == b"v1\nv2\n"
    assert consume(kafka, *chosen, "--from", "@1001", "--until", "@3000") == b"v2\n"
    assert consume(kafka, *chosen, "--from", "latest") == b""
    assert consume(kafka, *chosen, "--until", "@1969-12-31") == b""


@pytest.mark.parametrize("until", ["2", "3", "99", "@1999-01-01", str(2**63 - 1)])
def test_it_ends_where_a_partition_ends_though_it_may_be_asked_for_more(
    kafka: FakeKafka, until: str
) -> None:
    expected = {"2": 2, "3": 3}.get(until, 4)
    lines = consume(kafka, "--until", until, "--json").splitlines()
    offsets = [json.loads(line)["offset"] for line in lines if json.loads(line)["partition"] == 0]
    assert offsets == [*range(expected)]
    assert len(lines) == expected + 1


def test_a_partition_without_the_first_offset_gives_what_it_has_behind_it(
    kafka: FakeKafka,
) -> None:
    assert consume(kafka, "--from", "2") == b"v2\nv3\n"
    assert consume(kafka, "--from", "2", "--until", "3") == b"v2\n"
    kafka.topics["a"][1].batches.clear()
    kafka.topics["a"][1].end = 0
    assert consume(kafka, "--from", "1", "--until", "2") == b"v1\n"
    assert consume(kafka, "--from", "4") == b""
    kafka.topics["a"][0].start = 3
    assert consume(kafka, "--from", "0") == b"v3\n"


def test_json_gives_all_of_a_record(kafka: FakeKafka) -> None:
    (line,) = consume(kafka, "--partition", "0", "--from", "3", "--json").splitlines()
    assert json.loads(line) == {
        "topic": "a",
        "partition": 0,
        "offset": 3,
        "timestamp": 3000,
        "key": "k",
        "value": "v3",
        "headers": [["h", "3"], [{"base64": "/w=="}, None]],
    }
    assert json.loads(consume(kafka, "--partition", "1", "--json"))["value"] is None


def test_consume_ends_when_its_topic_is_deleted_and_created_again(
    smq_session_broker: SmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 8, its kind: it went on in a topic that had got the name meanwhile."""
    topic, find = uuid4().hex[:8], Consumer.find

    def fill(client: Client, value: bytes) -> None:
        client.create_topic(topic, 1)
        with client.producer() as producer:
            producer.send_batch(topic, {"value": [value] * 9}).result(30)

    with smq_session_broker.connect() as client:

        def found(self: Consumer, place: Start) -> dict[TopicPartition, int]:
            offsets = find(self, place)
            client.delete_topic(topic)
            fill(client, b"new")
            return offsets

        fill(client, b"old")
        monkeypatch.setattr(Consumer, "find", found)
        command = ["consume", topic, "--bootstrap", smq_session_broker.bootstrap]
        done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "was deleted and created again" in " ".join(done.output.split())
    assert b"new" not in done.stdout_bytes


def test_its_json_lines_copy_a_topic(kafka: FakeKafka, tmp_path: Path) -> None:
    kafka.add_topic("copy", 2)
    lines = tmp_path / "lines"
    lines.write_bytes(consume(kafka, "--json"))
    options = ["--json-lines", "--bootstrap", kafka.bootstrap]
    done = CliRunner().invoke(app, ["produce", "copy", str(lines), *options])
    assert done.exit_code == 0, done.output
    for one, other in zip(kafka.topics["a"], kafka.topics["copy"], strict=True):
        assert one.records() == other.records()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--from", "99"], "topic a has no offset 99: its records are from 0 up to 4"),
        (["--from", "99", "--until", "100"], "has no offset 99"),
        (["--from", "99", "--follow"], "has no offset 99"),
        (["--from", "2", "--partition", "1"], "its records are from 0 up to 1"),
        (["--partition", "2"], "topic a has no partition 2, only 0 to 1"),
        (["--from", "soon"], "--from takes earliest"),
    ],
)
def test_a_failed_consume_exits_with_code_1_and_a_sentence(
    kafka: FakeKafka, arguments: list[str], sentence: str
) -> None:
    output = consume(kafka, *arguments, exit_code=1).decode()
    assert output.startswith("smq: ")
    assert sentence in output


@contextmanager
def start(kafka: FakeKafka, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """The command as a shell starts it, also where we were started with SIGINT ignored (nohup)."""
    command = [*SMQ, "consume", "a", *arguments, "--bootstrap", kafka.bootstrap]
    pipe: Any = subprocess.PIPE
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as child:
        signal.signal(signal.SIGINT, before)
        try:
            yield child
        finally:
            child.kill()


def test_following_prints_what_comes_until_it_is_interrupted(kafka: FakeKafka) -> None:
    with start(kafka, "--follow", "--partition", "0", "--from", "3") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"v3\n"
        with connect(kafka.bootstrap) as client, client.producer() as producer:
            producer.send("a", b"later", partition=0)
        assert child.stdout.readline() == b"later\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=DEADLINE_SECONDS) == (b"", b"")
    assert child.returncode == 0


def test_following_may_have_an_end_that_is_yet_to_come(kafka: FakeKafka) -> None:
    with start(kafka, "--follow", "--partition", "0", "--until", "5") as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(4)] == [b"v%d\n" % n for n in range(4)]
        with connect(kafka.bootstrap) as client, client.producer() as producer:
            producer.send("a", b"last", partition=0)
        assert child.communicate(timeout=DEADLINE_SECONDS) == (b"last\n", b"")
    assert child.returncode == 0


def test_following_waits_for_the_first_offset_where_it_is_yet_to_come(kafka: FakeKafka) -> None:
    with start(kafka, "--follow", "--from", "2") as child:
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(2)] == [b"v2\n", b"v3\n"]
        with connect(kafka.bootstrap) as client, client.producer() as producer:
            for value in (b"offset 1", b"offset 2"):
                producer.send("a", value, partition=1)
        assert child.stdout.readline() == b"offset 2\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=DEADLINE_SECONDS) == (b"", b"")


def test_a_reader_that_has_enough_is_no_failure(kafka: FakeKafka) -> None:
    with start(kafka, "--follow") as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
        with connect(kafka.bootstrap) as client, client.producer() as producer:
            producer.send("a", b"nobody reads this")
        assert child.wait(DEADLINE_SECONDS) == 0
        assert child.stderr is not None
        assert child.stderr.read() == b""
