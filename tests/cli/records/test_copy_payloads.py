"""smq copy of records that refer to payloads."""

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.client import Client
from smq.client.reference import StoredPayload
from smq.testing.smq_broker import SmqBroker

PAYLOADS = [bytes([number]) * 100_000 for number in range(3)]


def copy(here: SmqBroker, *arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["copy", *arguments, "--bootstrap", here.bootstrap])
    assert done.exit_code == exit_code, done.output
    return done.output


@pytest.fixture
def topic(smq_session_broker: SmqBroker) -> str:
    """One payload is referred to twice; plain records stand between."""
    name = uuid4().hex[:8]
    with smq_session_broker.connect() as client, client.producer() as producer:
        client.create_topic(name, 1)
        references = [client.upload(name, payload) for payload in PAYLOADS]
        for reference in [*references, references[0]]:
            producer.send(name, b"plain")
            producer.send_handle(name, reference)
    return name


def payloads_of(client: Client, topic: str) -> list[bytes]:
    with client.consumer(topic, start="earliest") as consumer:
        records = list(consumer.read_until(consumer.find("latest")))
        return [bytes(each.payload) for each in records if each.payload is not None]


def expected() -> list[bytes]:
    return [each for payload in [*PAYLOADS, PAYLOADS[0]] for each in (b"plain", payload)]


def test_payloads_come_with_their_records_once(
    smq_session_broker: SmqBroker, smq_broker: SmqBroker, topic: str
) -> None:
    here, there = smq_session_broker, smq_broker
    told = json.loads(copy(here, topic, f"{topic}-to", "--json"))
    assert (told["records"], told["payloads"], told["payload_bytes"]) == (8, 3, 300_000)
    copy(here, topic, topic, "--to", there.bootstrap)
    with here.connect() as client:
        assert payloads_of(client, f"{topic}-to") == expected()
    with there.connect() as client:
        assert payloads_of(client, topic) == expected()


def test_a_payload_that_is_gone_is_named_and_the_copy_goes_on_when_it_is_back(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    with smq_session_broker.connect() as client:
        with client.consumer(topic, start="earliest") as consumer:
            records = list(consumer.read_until(consumer.find("latest")))
        payload = records[3].payload
        assert payload is not None
        path, kept = payload.path, smq_session_broker.data_dir / "kept"
        assert path is not None
        path.rename(kept)
        command = topic, f"{topic}-to", "--state", str(tmp_path / "state")
        output = copy(smq_session_broker, *command, exit_code=1)
        assert "a payload cannot be copied" in output
        assert "the payload is gone" in output
        kept.rename(path)
        copy(smq_session_broker, *command)
        assert payloads_of(client, f"{topic}-to") == expected()


def test_a_payload_that_is_there_and_old_is_brought_again(
    smq_session_broker: SmqBroker, topic: str, tmp_path: Path
) -> None:
    """Use fault 7: no later record could name it, and the copy was refused for ever."""
    command = topic, f"{topic}-to", "--state", str(tmp_path / "state")
    copy(smq_session_broker, *command)
    with smq_session_broker.connect() as client, client.producer() as producer:
        [files] = smq_session_broker.data_dir.rglob(f"payloads/*/{topic}-to")
        for file in files.iterdir():
            os.utime(file, (1, 1))
        with client.consumer(topic, start="earliest") as consumer:
            records = list(consumer.read_until(consumer.find("latest")))
        payload = records[1].payload
        assert isinstance(payload, StoredPayload)
        producer.send_handle(topic, payload.reference).result(30)
        copy(smq_session_broker, *command)
        assert payloads_of(client, f"{topic}-to") == [*expected(), PAYLOADS[0]]
        producer.send_handle(topic, payload.reference).result(30)
        for file in files.iterdir():
            os.utime(file, (0, 0))
        said = copy(smq_session_broker, *command, exit_code=1)
        assert "about to delete it" in said.replace("\n", " ")
