"""smq produce, against a fake Kafka: files in this process, pipes in another."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from smq.cli.records.produce import Format, Input, Sending, _lines_of_a_pipe
from smq.cli.verbs import app
from tests.app.smq_command import SMQ
from tests.client.fake_kafka import FakeKafka, fake_kafka

PLAIN = Format(key_separator=None, headers=(), partition=None, is_json=False)
JSON = PLAIN._replace(is_json=True)
DEADLINE_SECONDS = 20


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with fake_kafka() as fake:
        fake.add_topic("a", 2)
        yield fake


def produce(kafka: FakeKafka, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["produce", "a", *arguments, "--bootstrap", kafka.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


def records(kafka: FakeKafka) -> list[Any]:
    return [record for partition in kafka.topics["a"] for record in partition.records()]


def test_a_line_is_a_value() -> None:
    assert PLAIN.record(b"a:b") == Input(b"a:b")


def test_a_separator_cuts_off_the_key() -> None:
    keyed = PLAIN._replace(key_separator=b"::")
    assert keyed.record(b"k::v::w") == Input(b"v::w", b"k")
    with pytest.raises(ValueError, match=r"no '::' after the key$"):
        keyed.record(b"k:v")


def test_a_backslash_t_separator_is_refused_with_the_spelling_of_a_tab() -> None:
    with pytest.raises(ValueError, match=r"; a tab is \$'\\t'$"):
        PLAIN._replace(key_separator=rb"\t").record(b"k\tv")


def test_json_says_all_of_a_record() -> None:
    fields = {
        "value": {"base64": "/w=="},
        "key": "k",
        "headers": [["h", "1"], ["n", None]],
        "partition": 1,
        "timestamp": 7,
    }
    headers = ((b"h", b"1"), (b"n", None))
    assert JSON.record(json.dumps(fields).encode()) == Input(b"\xff", b"k", headers, 1, 7)
    assert JSON.record(b'{"value": null}') == Input(None)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"{}", b"1", b"null", b'{"value": 1}', b'{"value": "v", "partition": "1"}',
        b'{"value": "v", "timestamp": true}', b'{"value": "v", "headers": ["a"]}',
        b'{"value": "v", "headers": [["a"]]}', b'{"value": "v", "headers": {"a": 1}}', b"\xff",
        b'{"value": "v", "headers": 3}', b'{"value": "v", "headers": null}', b"[" * 100_000,
        b'{"value": "\\ud800"}', b'{"value": "v", "timestamp": -9223372036854775808}',
        b'{"value": "v", "timestamp": 9223372036854775808}', b'{"value": "v", "timestamp": 1e3}',
        b'{"value": "v", "partition": -1}', b'{"value": "v", "partition": 2147483648}',
        b'{"value": "v", "partition": ' + b"1" * 5000 + b"}",
    ],
)  # fmt: skip
def test_json_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (json's own words are as good.)
        JSON.record(line)


def test_each_line_of_each_file_is_sent(kafka: FakeKafka, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1\n\n3\n")
    two.write_bytes(b"no newline at the end")
    output = produce(kafka, str(one), str(two), "--partition", "1", "--header", "h=v")
    assert output == "4 records sent to a\n"
    assert [each.value for each in kafka.topics["a"][1].records()] == [
        b"1", b"", b"3", b"no newline at the end",
    ]  # fmt: skip
    assert {each.headers for each in records(kafka)} == {((b"h", b"v"),)}
    assert all(each.timestamp_ms > 1_700_000_000_000 for each in records(kafka))


def test_the_summary_is_json_when_asked_for(kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"k:v\n")
    options = ("--key-separator", ":", "--compression", "gzip", "--json")
    summary = json.loads(produce(kafka, str(path), *options))
    assert (summary["topic"], summary["records"]) == ("a", 1)
    assert list(summary["next_offsets"].values()) == [1]


def test_a_line_that_is_no_record_ends_it_after_those_before(
    kafka: FakeKafka, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"value": "good"}\nbad\n{"value": "never sent"}\n')
    output = produce(kafka, str(path), "--json-lines", exit_code=1)
    assert output.startswith(f"smq: line 2 of {path} is not a record: ")
    assert output.endswith("; records sent before it: 1\n")
    assert [each.value for each in records(kafka)] == [b"good"]


def test_an_object_without_a_value_is_no_record(kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"value": null}\n{"vaule": "v"}\n')
    output = produce(kafka, str(path), "--json-lines", exit_code=1)
    assert output.startswith(f'smq: line 2 of {path} is not a record: it has no field "value" (')
    assert [each.value for each in records(kafka)] == [None]


@pytest.mark.parametrize("timestamp", [-1, -1001, -(2**63) + 1, 2**63 - 1, None])
def test_a_time_may_be_below_0(timestamp: int | None) -> None:
    """Use fault 6: brokers take such times, and `smq export` writes them."""
    line = json.dumps({"value": "v", "timestamp": timestamp}).encode()
    assert JSON.record(line).timestamp_ms == timestamp


def test_an_invalid_timestamp_is_refused_with_its_line(kafka: FakeKafka, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"value": "v", "timestamp": -1}\n{"value": "v", "timestamp": 1.5}\n')
    output = produce(kafka, str(path), "--json-lines", exit_code=1)
    assert output.startswith(
        f"smq: line 2 of {path} is not a record: its timestamp must be a whole number"
    )


@pytest.mark.parametrize("partition", ["-1", "99999999999999"])
def test_a_partition_that_cannot_be_is_wrong_usage(kafka: FakeKafka, partition: str) -> None:
    produce(kafka, "--partition", partition, exit_code=2)


def test_a_separator_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(SystemExit, match="--key-separator takes UTF-8"):
        app(["produce", "a", "--key-separator", "\udcff"], standalone_mode=False)


def test_an_unreadable_input_file_exits_with_the_reason(kafka: FakeKafka, tmp_path: Path) -> None:
    output = produce(kafka, str(tmp_path / "nope"), exit_code=1)
    assert output.endswith("cannot be read: No such file or directory\n")


def test_a_line_of_a_pipe_does_not_wait_for_the_next(kafka: FakeKafka) -> None:
    command = [*SMQ, "produce", "a", "--bootstrap", kafka.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b"first\nsec")
        child.stdin.flush()
        assert kafka.wait_for(lambda: len(records(kafka)) == 1, DEADLINE_SECONDS)
        output, _ = child.communicate(b"ond", timeout=DEADLINE_SECONDS)
    assert output == b"2 records sent to a\n"
    assert sorted(each.value for each in records(kafka)) == [b"first", b"second"]


class Batches:
    """A producer that notes the bytes of each batch."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def send_batch(self, _topic: str, columns: dict[str, Any]) -> "Batches":
        self.sizes.append(sum(map(len, columns["value"])))
        self.count = len(columns["value"])
        return self

    def result(self) -> SimpleNamespace:
        return SimpleNamespace(offsets=np.arange(self.count), partitions=np.zeros(self.count, int))


def test_large_lines_go_in_batches_of_bounded_bytes() -> None:
    """Use fault 7: 10,000 lines were kept whatever their size: `smq import` refused a file of lines
    of 900 kB for its memory, and `smq produce` took 9 GB."""
    producer = Batches()
    sending = Sending(producer, "a")  # type: ignore[arg-type]
    for _ in range(100):
        sending.add(Input(bytes(900_000)))
    sending.flush()
    assert sending.acknowledged == 100
    assert sum(producer.sizes) == 90_000_000
    assert max(producer.sizes) < 10_000_000
    assert len(producer.sizes) == 10
    for _ in range(100):
        sending.add(Input(b"", headers=((b"a", bytes(900_000)),)))
    assert len(producer.sizes) == 20


def test_a_line_without_an_end_is_refused(
    kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use fault 7: all of a file was read into memory for one line."""
    monkeypatch.setattr("smq.cli.records.produce.LINE_BYTES_MAX", 1000)
    (tmp_path / "lines").write_text("a" * 999 + "\n" + "b" * 5000)
    output = produce(kafka, str(tmp_path / "lines"), exit_code=1)
    assert "line 2 of" in output
    assert "it has 1000 bytes or more; records sent before it: 1" in output
    read, write = os.pipe()
    os.write(write, b"a" * 999 + b"\n" + b"b" * 5000)
    lines = _lines_of_a_pipe(read)
    assert [next(lines), next(lines)] == [b"a" * 999, b"b" * 5000]
    with pytest.raises(StopIteration):
        next(lines)
    os.close(write)
    os.close(read)
