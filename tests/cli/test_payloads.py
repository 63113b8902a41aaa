"""smq payload, against a broker."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker


def run(broker: SmqBroker, *arguments: str, exit_code: int = 0) -> bytes:
    done = CliRunner().invoke(app, ["payload", *arguments, "--bootstrap", broker.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.stdout_bytes + done.stderr_bytes


@pytest.fixture
def topic(smq_session_broker: SmqBroker) -> str:
    name = uuid4().hex[:8]
    with smq_session_broker.connect() as client:
        client.create_topic(name, 1)
    return name


def test_a_payload_is_put_listed_and_got(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 100_000
    file = tmp_path / "in"
    file.write_bytes(content)
    put = ("put", topic, str(file), "--content-type", "image/tiff", "--key", "k", "--json")
    facts = json.loads(run(smq_session_broker, *put))
    assert (facts["length"], facts["offset"], facts["content_type"]) == (
        len(content),
        0,
        "image/tiff",
    )
    listed = json.loads(run(smq_session_broker, "list", topic, "--json"))
    assert listed["payloads"] == [{"id": facts["id"], "length": len(content)}]
    assert not listed["more"]
    assert run(smq_session_broker, "get", topic, facts["id"]) == content
    out = tmp_path / "out"
    run(smq_session_broker, "get", topic, facts["id"], str(out))
    assert out.read_bytes() == content
    with (
        smq_session_broker.connect() as client,
        client.consumer(topic, start="earliest") as consumer,
    ):
        (record,) = consumer.read_until(consumer.find("latest"))
        assert record.key == b"k"
        assert record.payload is not None
        assert bytes(record.payload) == content


def test_a_long_list_is_cut(smq_session_broker: SmqBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_bytes(b"x")
    for _ in range(3):
        run(smq_session_broker, "put", topic, str(file), "--only-upload")
    listed = json.loads(run(smq_session_broker, "list", topic, "--count", "2", "--json"))
    assert (len(listed["payloads"]), listed["more"]) == (2, True)
    assert b"and more" in run(smq_session_broker, "list", topic, "--count", "2")


def test_a_failed_payload_command_exits_with_a_sentence(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    missing = f"{'0' * 32}-{1:012x}-{0:08x}"
    for arguments, sentence in [
        (["put", topic, str(tmp_path / "none")], b"No such file"),
        (["put", "no-such", str(tmp_path)], b"there is no topic no-such"),
        (["get", topic, "x"], b"is not the id of a payload"),
        (["get", topic, missing], b"the payload is gone"),
    ]:
        assert sentence in run(smq_session_broker, *arguments, exit_code=1)
