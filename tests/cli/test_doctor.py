"""smq doctor, against a broker."""

import json
import os
import signal
import stat
import tarfile
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Producer
from typer.testing import CliRunner

from smq.cli.broker_facts import open_transactions
from smq.cli.verbs import app
from smq.testing.smq_broker import SmqBroker


def doctor(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["doctor", *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def test_an_archive_has_facts_and_nothing_of_a_record(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    topic, secret = uuid4().hex[:8], uuid4().hex
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1)
        with client.producer() as producer:
            producer.send(topic, secret.encode(), key=secret.encode())
    archive = tmp_path / "doctor.tar.gz"
    where = ("--data-dir", str(smq_session_broker.data_dir), "--archive", str(archive))
    facts = json.loads(doctor(*where, "--json"))
    assert facts["archive"] == str(archive)
    with tarfile.open(archive) as tar:
        texts = {
            member.name: file.read().decode()
            for member in tar.getmembers()
            if (file := tar.extractfile(member)) is not None
        }
    assert {"smq-doctor/findings.txt", "smq-doctor/broker.json", "smq-doctor/shard-1/status"} <= {
        *texts
    }
    assert topic in texts["smq-doctor/broker.json"]
    assert not any(secret in text for text in texts.values())
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600, "it names topics, groups and clients"
    assert f"written to {archive}" in doctor(*where)


def test_it_works_while_a_shard_hangs(smq_session_broker: SmqBroker) -> None:
    pid = smq_session_broker.status().processes["shard-1"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "findings" in doctor("--data-dir", str(smq_session_broker.data_dir), "--json")
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_doctor_that_cannot_work_exits_with_a_sentence(
    smq_session_broker: SmqBroker, tmp_path: Path
) -> None:
    assert "no broker serves" in doctor("--data-dir", str(tmp_path), exit_code=1)
    where = ("--data-dir", str(smq_session_broker.data_dir))
    output = doctor(*where, "--archive", str(tmp_path / "no/such.tar.gz"), exit_code=1)
    assert "cannot be written" in output


def test_an_open_transaction_is_named(smq_session_broker: SmqBroker) -> None:
    """Use fault 2."""
    topic, name = uuid4().hex[:8], uuid4().hex
    with smq_session_broker.connect() as client:
        client.create_topic(topic, 1)
    producer = Producer(
        {"bootstrap.servers": smq_session_broker.bootstrap, "transactional.id": name}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    assert producer.flush(30) == 0
    [found] = [each for each in open_transactions(smq_session_broker.data_dir) if each[0] == name]
    assert found.producer_id >= 0
    assert 0 <= found.open_s < 60
    assert found.parts == [(topic, 0)]
    producer.abort_transaction(30)
    assert not [each for each in open_transactions(smq_session_broker.data_dir) if each[0] == name]
