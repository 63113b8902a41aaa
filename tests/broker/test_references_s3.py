"""Pass by reference with the filer in S3: the same, with the client's own keys."""

import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

import smq
from smq.client.errors import PayloadMissing, ReferenceRejected
from smq.client.reference import Payload
from smq.testing.s3_server import S3Server, s3_server, settings_for
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.broker.one_topic import SETTINGS, store_of
from tests.filer.cable import Cable
from tests.filer.killed_upload import upload_and_be_killed

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
# A sweep looks at dates, and those of S3 are whole seconds.
QUICK = {"filer.sweep.ms": "3000", "log.retention.check.interval.ms": "100"}
SEVERAL_PARTS = 20_000_000
UPLOAD = """
from pathlib import Path
import smq
bootstrap, path = sys.argv[1:]
with smq.connect(bootstrap) as client:
    client.upload("broken", Path(path))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    directory = tmp_path_factory.mktemp("broker")
    settings = SETTINGS | QUICK | settings_for(server, directory, "references")
    with SmqBroker(directory, settings) as broker:
        yield broker


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


@pytest.fixture
def client(broker: SmqBroker) -> Iterator[smq.Client]:
    with smq.connect(broker.bootstrap) as client:
        yield client


def read(client: smq.Client, topic: str, count: int) -> list[Payload]:
    found: list[Payload] = []
    with client.consumer(topic, start="earliest") as consumer:

        def enough() -> bool:
            with consumer.poll(timeout_s=0.2) as batch:
                found.extend(record.payload for record in batch if record.payload is not None)
            return len(found) >= count

        eventually(enough, f"{count} payloads are read")
    return found


def test_files_bytes_and_streams_go_to_the_bucket_and_come_back(
    client: smq.Client, tmp_path: Path
) -> None:
    client.create_topic("scans", 1)
    path, data = tmp_path / "source", os.urandom(SEVERAL_PARTS)
    path.write_bytes(data)
    with client.producer() as producer:
        sent = [
            producer.send_reference("scans", path),
            producer.send_reference("scans", b"small"),
            producer.send_reference("scans", BytesIO(data)),
            producer.send_reference("scans", path, move=True),
        ]
        assert [each.result(30).offset for each in sent] == [0, 1, 2, 3]
    assert not path.exists()
    payloads = read(client, "scans", 4)
    said: list[tuple[int, int]] = []
    assert payloads[0].view(lambda *how_far: said.append(how_far)) == data
    assert said[-1] == (SEVERAL_PARTS, SEVERAL_PARTS)
    assert len(said) > 1
    assert payloads[0].path is None
    assert payloads[2].read(12_345_678, 100) == data[12_345_678:12_345_778]
    assert [bytes(each) for each in payloads[1:]] == [b"small", data, data]


def test_a_file_goes_on_where_a_killed_process_stopped(
    client: smq.Client, broker: SmqBroker, server: S3Server, tmp_path: Path
) -> None:
    client.create_topic("broken", 1)
    path, data = tmp_path / "source", os.urandom(SEVERAL_PARTS)
    path.write_bytes(data)
    before = len(server.parts_sent())
    upload_and_be_killed(
        UPLOAD,
        [broker.bootstrap, str(path)],
        tmp_path,
        2,
        lambda: len(server.parts_sent()) == before + 2,
    )
    with client.producer() as producer:
        producer.send_reference("broken", path).result(60)
    assert sorted(server.parts_sent()[before:]) == [1, 2, 3]
    [payload] = read(client, "broken", 1)
    assert payload.view() == data


def test_a_handle_to_nothing_is_rejected(client: smq.Client) -> None:
    client.create_topic("one", 1)
    client.create_topic("other", 1)
    elsewhere = client.upload("other", b"of another topic")
    with client.producer() as producer:
        with pytest.raises(ReferenceRejected, match="has no payload"):
            producer.send_handle("one", elsewhere).result(30)
        assert producer.send_handle("other", elsewhere).result(30).offset == 0


def test_a_batch_of_very_many_handles_is_taken_as_fast_as_the_bucket_answers(
    client: smq.Client,
) -> None:
    client.create_topic("many", 1)
    handle = client.upload("many", b"named by all")
    others = [client.upload("many", b"%d" % number) for number in range(40)]
    with client.producer(linger_ms=200) as producer:
        sent = [producer.send_handle("many", each) for each in [*others, *([handle] * 1000)]]
        assert [each.result(60).offset for each in sent] == list(range(1040))


def test_kafka_clients_get_it_inline(client: smq.Client, broker: SmqBroker) -> None:
    client.create_topic("inline", 1, {"smq.reference.delivery": "inline"})
    with client.producer() as producer:
        producer.send_reference("inline", b"payload").result(30)
    with (
        smq.connect(broker.bootstrap, transport="kafka") as plain,
        plain.consumer("inline", start="earliest") as consumer,
        consumer.poll(timeout_s=20) as batch,
    ):
        [value] = [bytes(record.value or b"") for record in batch]
    assert value == b"payload"


def test_while_the_bucket_is_away_kafka_clients_wait_for_payloads(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cable(server.port) as cable:
        monkeypatch.setenv("AWS_ENDPOINT_URL", cable.endpoint)
        settings = SETTINGS | settings_for(server, tmp_path, "away")
        settings["filer.s3.endpoint"] = cable.endpoint
        with (
            SmqBroker(tmp_path, settings) as broker,
            smq.connect(broker.bootstrap, transport="kafka") as client,
        ):
            client.create_topic("inline", 1, {"smq.reference.delivery": "inline"})
            with client.producer() as producer:
                producer.send_reference("inline", b"payload").result(30)
            cable.cut()
            with client.consumer("inline", start="earliest") as consumer:
                with consumer.poll(timeout_s=5) as batch:
                    assert not [*batch]
                cable.mend()
                with consumer.poll(timeout_s=30) as batch:
                    assert [bytes(record.value or b"") for record in batch] == [b"payload"]


def test_a_payload_that_no_record_names_is_deleted(client: smq.Client, broker: SmqBroker) -> None:
    client.create_topic("short", 1, {"retention.ms": "2500", "smq.reference.orphan.ms": "1500"})
    store = store_of(broker)
    with client.producer() as producer:
        never = client.upload("short", b"never submitted")
        producer.send_reference("short", b"kept a while").result(30)
    [payload] = read(client, "short", 1)
    assert bytes(payload) == b"kept a while"
    assert never.key("short") in {facts.key for facts in store.list("payloads/kafka/short/")}
    eventually(lambda: not list(store.list("payloads/kafka/short/")), "both are swept")
    with pytest.raises(PayloadMissing):
        payload.read()
