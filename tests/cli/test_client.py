"""Shared by the verbs: failures as a sentence, bytes in JSON."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from smq.cli.client import (
    checked_text,
    client_at,
    cluster_at,
    from_json,
    refusal,
    split_pair,
    to_json,
    utf8,
)
from smq.cli.verbs import VERBS, app
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.testing.credentials import UsersInMemory
from tests.client.fake_kafka import fake_kafka


@given(st.none() | st.binary(max_size=20))
def test_bytes_survive_json(data: bytes | None) -> None:
    assert from_json(to_json(data)) == data


def test_text_stays_text() -> None:
    assert to_json("Zürich".encode()) == "Zürich"
    assert to_json(b"\xff") == {"base64": "/w=="}


@pytest.mark.parametrize("value", [1, [], {}, {"base64": 1}, {"base64": "?"}, {"text": "a"}])
def test_an_invalid_json_field_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"base64|Base64|Incorrect|Only"):
        from_json(value)


def test_a_pair_has_a_name() -> None:
    assert split_pair("a=b=c", "--header") == ("a", "b=c")
    for text in ("a", "=b", ""):
        with pytest.raises(SystemExit, match="--header takes name=value"):
            split_pair(text, "--header")


def test_an_argument_is_utf8() -> None:
    assert utf8("ü", "--header") == "ü".encode()
    for refused in (utf8, split_pair):
        with pytest.raises(SystemExit, match=r"^smq: --header takes UTF-8, not 'k=\\udcff'"):
            refused("k=\udcff", "--header")


@pytest.mark.parametrize(
    "verb",
    [["topic", each] for each in ("create", "describe", "delete")] + [["produce"], ["consume"]],
)
@pytest.mark.parametrize("name", ["", "bad name", "\udcff\udcfe", "a" * 250])
def test_a_name_that_no_topic_can_have_is_refused_in_a_sentence(verb: list[str], name: str) -> None:
    with pytest.raises(SystemExit, match=r"^smq: Topic name is invalid: "):
        app([*verb, name], standalone_mode=False)


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (BrokerError(ErrorCode.INVALID_CONFIG, "there is no such setting"), "no such setting"),
        (BrokerError(ErrorCode.INVALID_CONFIG), "the broker answers INVALID_CONFIG"),
        (PeerError("garbage"), "is not a Kafka broker: garbage"),
        (refusal("as it is"), "as it is"),
    ],
)
def test_a_failure_is_a_sentence(failure: BaseException, sentence: str) -> None:
    with (
        fake_kafka() as kafka,
        pytest.raises(SystemExit, match=f"^smq: .*{sentence}$"),
        cluster_at(kafka.bootstrap),
    ):
        raise failure


def test_an_invalid_bootstrap_address_exits_with_a_sentence() -> None:
    for verb in (cluster_at, client_at):
        with pytest.raises(SystemExit, match=r"^smq: --bootstrap: a broker's address is host:port"):
            verb("nowhere").__enter__()
        with pytest.raises(SystemExit, match=r"^smq: --bootstrap: a port is at most 65535"):
            verb("127.0.0.1:99999").__enter__()


def test_when_no_broker_answers_it_says_what_to_do() -> None:
    with pytest.raises(SystemExit, match=r"^smq: .* start one with `smq serve`, or name another"):
        cluster_at("127.0.0.1:1").__enter__()


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_a_command_without_a_login_says_that_the_broker_may_want_one(verb: str) -> None:
    """It took a minute, and then said: 'timed out; start one with `smq serve`'."""
    with fake_kafka() as kafka:
        kafka.add_topic("a")
        kafka.users = UsersInMemory({})
        shown = CliRunner().invoke(app, [verb, "a", "--bootstrap", kafka.bootstrap], input="x\n")
    assert "its listener may want TLS, a login or a certificate" in str(shown.exception)
    assert "smq serve" not in str(shown.exception)


def test_a_command_logs_in_as_a_file_of_properties_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMQ_CLIENT_PROPERTIES", "")  # Taken back at the end.
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=alice\nsasl.password=pencil\n"
    )
    with fake_kafka() as kafka:
        kafka.users = UsersInMemory({"alice": "pencil"})
        kafka.add_topic("a")
        words = ["topic", "list", "--bootstrap", kafka.bootstrap]
        shown = CliRunner().invoke(app, [*words, "--command-config", str(path)])
        assert (shown.exit_code, kafka.logged_in) == (0, ["alice"])
        monkeypatch.setenv("SMQ_CLIENT_PROPERTIES", str(tmp_path / "none"))
        refused = CliRunner().invoke(app, words)
    assert str(refused.exception).startswith("smq: the properties file")


def test_a_command_that_connects_twice_logs_in_twice_though_its_properties_are_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second reading found the pipe empty, and the records went in plain bytes."""
    reading, writing = os.pipe()
    monkeypatch.setenv("SMQ_CLIENT_PROPERTIES", f"/dev/fd/{reading}")
    os.write(
        writing,
        b"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        b"sasl.username=alice\nsasl.password=pencil\n",
    )
    os.close(writing)
    with fake_kafka() as kafka, closing(os.fdopen(reading, "rb")):
        kafka.users = UsersInMemory({"alice": "pencil"})
        kafka.add_topic("a")
        with client_at(kafka.bootstrap, "kafka") as client:
            assert "a" in client.topics()
        with cluster_at(kafka.bootstrap) as cluster:
            assert [each.name for each in cluster.topics()] == ["a"]
        assert len(kafka.logged_in) > 1
    assert set(kafka.logged_in) == {"alice"}


def test_a_command_that_starts_others_refuses_properties_that_they_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SMQ_CLIENT_PROPERTIES", "")  # Taken back at the end.
    words = ["bench", "run", "latency", "--command-config", "/dev/stdin"]
    refused = CliRunner().invoke(app, words)
    assert "smq bench starts others that connect too" in str(refused.exception)


def test_every_command_that_connects_takes_a_file_of_properties() -> None:
    every: Any = get_command(app)
    commands = [every.commands[name] for name in VERBS]
    alone = [one for each in commands for one in getattr(each, "commands", {"": each}).values()]
    names = [{parameter.name for parameter in each.params} for each in alone]
    assert sum("bootstrap" in each for each in names) > 20
    assert all(("bootstrap" in each) == ("command_config" in each) for each in names)


def test_a_name_is_text_of_bounded_length() -> None:
    assert checked_text("häuser", 7) == "häuser"
    for name, why in (("häuser", "at most 6 bytes"), ("\udcff", "no text in UTF-8")):
        with pytest.raises(SystemExit, match=why):
            checked_text(name, 6)
