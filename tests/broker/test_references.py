"""Pass by reference on a real broker: as its users would, and with its processes killed."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from random import Random
from threading import Thread

import numpy as np
import pytest
from confluent_kafka import Consumer as KafkaConsumer, Producer as KafkaProducer, TopicPartition

import smq
from smq.app.process.clock import wall_ms
from smq.client.errors import PayloadDamaged, PayloadMissing, ReferenceRejected
from smq.client.kafka.cluster import Cluster
from smq.model.errors import BrokerError, ErrorCode, StoreError
from smq.model.references import PREFIX, Reference
from smq.shard.references import REFUSED_MAX
from smq.testing.payloads import HANDLE_HEADERS, handle_batch, reference_to, uploaded
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from tests.app.fake_broker import eventually
from tests.broker.one_topic import LATEST, SETTINGS, OneTopic, store_of

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).resolve().parents[2]
TRANSPORTS = ["shared memory", "kafka"]
QUICK = {
    **SETTINGS,
    "filer.sweep.ms": "100",
    "reference.orphan.ms": "1500",
    "log.retention.check.interval.ms": "100",
}
VICTIMS = ("shard-1", "coordinator", "sealer", SUPERVISOR)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture(params=TRANSPORTS)
def client(broker: SmqBroker, request: pytest.FixtureRequest) -> Iterator[smq.Client]:
    with smq.connect(broker.bootstrap, transport=request.param) as client:
        yield client


@pytest.fixture
def topic(client: smq.Client, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.translate(str.maketrans("[] ", "..-"))[-200:]
    client.create_topic(name, partitions=1)
    return name


def payloads(broker: SmqBroker, topic: str) -> set[str]:
    """Keys of a topic's payloads."""
    return {facts.key for facts in store_of(broker).list(f"{PREFIX}kafka/{topic}/")}


def read(client: smq.Client, topic: str, count: int) -> list[bytes]:
    """The payloads of so many records, each read before the next poll and verified."""
    found: list[bytes] = []
    with client.consumer(topic, start="earliest") as consumer:

        def enough() -> bool:
            with consumer.poll(timeout_s=0.2) as batch:
                found.extend(bytes(r.payload) for r in batch if r.payload is not None)
            return len(found) >= count

        eventually(enough, f"{count} payloads are read")
    return found[:count]


# As its users would.


def test_files_bytes_arrays_and_streams_are_passed_by_reference(
    client: smq.Client, topic: str, tmp_path: Path
) -> None:
    path, data = tmp_path / "payload", os.urandom(3_000_000)
    path.write_bytes(data)
    with client.producer() as producer:
        sent = [
            producer.send_reference(topic, path, key=b"file", content_type="image/tiff"),
            producer.send_reference(topic, str(path)),
            producer.send_reference(topic, memoryview(data)[:10]),
            producer.send_reference(topic, np.arange(4)),
            producer.send_reference(topic, BytesIO(data)),
            producer.send_reference(topic, b""),
        ]
        assert [each.result(10).offset for each in sent] == [0, 1, 2, 3, 4, 5]
    array = np.arange(4).tobytes()
    assert read(client, topic, 6) == [data, data, data[:10], array, data, b""]


def test_a_payload_is_mapped_and_outlives_its_batch(client: smq.Client, topic: str) -> None:
    data = os.urandom(100_000)
    with client.producer() as producer:
        producer.send_reference(topic, data, content_type="x/y", headers={"a": b"1"}).result(10)
    with client.consumer(topic, start="earliest") as consumer:
        with consumer.poll(timeout_s=10) as batch:
            [record] = batch
            payload, headers = record.payload, record.headers
        consumer.poll(timeout_s=0.01).release()
        assert payload is not None
        assert (len(payload), payload.content_type, payload.path is not None) == (100_000, "x/y", 1)
        assert payload.read(5, 10) == data[5:15]
        view = payload.view()
        assert view == data
        assert view.readonly
        assert dict(headers)["a"] == b"1"


def test_a_record_that_stands_for_nothing_else_is_its_own_payload(
    client: smq.Client, topic: str
) -> None:
    with client.producer() as producer:
        producer.send(topic, b"plain").result(10)
        producer.send(topic, None).result(10)
    assert read(client, topic, 1) == [b"plain"]


def test_upload_first_submit_later_several_times_or_never(
    client: smq.Client, topic: str, broker: SmqBroker
) -> None:
    first = client.upload(topic, b"first")
    client.upload(topic, b"never submitted")
    with client.producer(compression="zstd", linger_ms=5) as producer:
        producer.send(topic, b"plain" * 1000)
        sent = [producer.send_handle(topic, first, key=b"%d" % i) for i in range(3)]
        assert [each.result(10).offset for each in sent] == [1, 2, 3]
    assert read(client, topic, 4) == [b"plain" * 1000, *[b"first"] * 3]
    assert len(payloads(broker, topic)) == 2


def test_all_of_it_from_asyncio(client: smq.Client, topic: str, broker: SmqBroker) -> None:
    async def pass_by_reference() -> None:
        async with smq.connect_async(broker.bootstrap, transport=client.transport) as other:
            reference = await other.upload(topic, b"first")
            async with other.producer() as producer:
                await (await producer.send_handle(topic, reference))
                await (await producer.send_reference(topic, b"second", key=b"k"))

    asyncio.run(pass_by_reference())
    assert read(client, topic, 2) == [b"first", b"second"]


def test_a_moved_file_is_the_payload_itself(
    client: smq.Client, topic: str, broker: SmqBroker, tmp_path: Path
) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b"moved")
    inode = path.stat().st_ino
    reference = client.upload(topic, path, move=True)
    assert not path.exists()
    placed = store_of(broker).local_path(reference.key(topic))
    assert placed is not None
    if tmp_path.stat().st_dev == broker.data_dir.stat().st_dev:
        assert placed.stat().st_ino == inode


def test_the_lines_of_the_documentation_run(
    broker: SmqBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "references.md").read_text()
    lines = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "scan.tiff").write_bytes(b"a scan")
    monkeypatch.chdir(tmp_path)
    exec(lines.replace("127.0.0.1:9092", broker.bootstrap), {})


def test_a_handle_to_nothing_is_rejected_and_nothing_is_written(
    client: smq.Client, topic: str, broker: SmqBroker
) -> None:
    other = f"{topic[-100:]}-other"
    client.create_topic(other)
    elsewhere = client.upload(other, b"of another topic")
    here = client.upload(topic, b"whole")
    placed = store_of(broker).local_path(here.key(topic))
    assert placed is not None
    with client.producer() as producer:
        with pytest.raises(ReferenceRejected, match="has no payload"):
            producer.send_handle(topic, elsewhere).result(10)
        placed.chmod(0o600)
        os.truncate(placed, 3)
        with pytest.raises(ReferenceRejected, match="it is not complete"):
            producer.send_handle(topic, here).result(10)
        assert producer.send(topic, b"goes on").result(10).offset == 0


def test_a_changed_payload_fails_its_crc(client: smq.Client, topic: str, broker: SmqBroker) -> None:
    with client.producer() as producer:
        reference = client.upload(topic, b"payload")
        producer.send_handle(topic, reference).result(10)
    placed = store_of(broker).local_path(reference.key(topic))
    assert placed is not None
    placed.write_bytes(b"payl0ad")
    with client.consumer(topic, start="earliest") as consumer:
        with consumer.poll(timeout_s=10) as batch:
            [payload] = [record.payload for record in batch]
        assert payload is not None
        assert bytes(payload.view(verify=False)) == b"payl0ad"
        with pytest.raises(PayloadDamaged, match="CRC-32C"):
            payload.view()
    placed.unlink()
    with client.consumer(topic, start="earliest") as consumer:
        with consumer.poll(timeout_s=10) as batch:
            [payload] = [record.payload for record in batch]
        assert payload is not None
        with pytest.raises(PayloadMissing):
            payload.view()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"source": 5}, TypeError, "source is a int; it must be a path, a stream"),
        ({"source": np.zeros((4, 4))[:, 1]}, TypeError, "bytes in one piece"),
        ({"source": b"x", "content_type": "a\nb"}, ValueError, r"content_type is 'a\\nb'"),
        ({"source": b"x", "move": True}, ValueError, "only a file, named by its path"),
        ({"source": "/does/not/exist"}, FileNotFoundError, "/does/not/exist"),
    ],
    ids=["number", "strides", "type", "move", "missing"],
)
def test_wrong_arguments_raise_at_the_call(
    broker: SmqBroker, arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    with smq.connect(broker.bootstrap) as client:
        with suppress(BrokerError):
            client.create_topic("arguments")
        with pytest.raises(error, match=words):
            client.upload("arguments", **arguments)  # type: ignore[arg-type]
        with pytest.raises(smq.NoSuchTopic):
            client.upload("no-such-topic", b"x")
        with client.producer() as producer, pytest.raises(smq.NoSuchTopic):
            producer.send_reference("no-such-topic", b"x")
        assert payloads(broker, "no-such-topic") == set()
        with client.producer() as producer, pytest.raises(TypeError, match="reference is a str"):
            producer.send_handle("arguments", "x")  # type: ignore[arg-type]


def test_a_local_client_that_floods_handles_to_nothing_is_dropped(broker: SmqBroker) -> None:
    with smq.connect(broker.bootstrap, transport="shared memory") as client:
        client.create_topic("flood", 1)
        producer = client.producer(delivery_timeout_s=3, batch_bytes=1024)
        gone = reference_to(b"gone")
        sent = [producer.send_handle("flood", gone) for _ in range(20 * REFUSED_MAX)]
        eventually(
            lambda: "it floods the broker with handles to missing payloads" in broker.tail(),
            "it is dropped",
        )
        with client.producer() as other:
            assert other.send("flood", b"goes on").result(10).offset == 0
        assert all(isinstance(each.exception(10), BrokerError) for each in sent)
        with suppress(BrokerError):
            producer.close(10)


# Kafka's clients.


def kafka_read(broker: SmqBroker, topic: str, count: int, **configs: object) -> list[object]:
    """Values as librdkafka gives them."""
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in configs.items()},
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[object] = []

    def enough() -> bool:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            assert message.offset() == len(found)
            found.append(message.value())
        return len(found) >= count

    eventually(enough, f"librdkafka reads {count} records")
    consumer.close()
    return found[:count]


def test_kafka_clients_get_the_handle_or_the_payload_as_the_topic_says(broker: SmqBroker) -> None:
    small, large = os.urandom(50_000), os.urandom(3_000_000)
    with (
        Cluster(broker.bootstrap) as cluster,
        smq.connect(broker.bootstrap) as client,
        client.producer() as producer,
    ):
        for name, delivery in (("as-handle", "handle"), ("as-payload", "inline")):
            topic = OneTopic(broker, cluster, name, {"smq.reference.delivery": delivery})
            references = [client.upload(name, each) for each in (small, large)]
            for each in references:
                producer.send_handle(name, each).result(10)
            producer.send(name, b"plain").result(10)
            handles = [each.handle() for each in references]
            if delivery == "handle":
                assert kafka_read(broker, name, 3) == [*handles, b"plain"]
                continue
            wide = {"max_partition_fetch_bytes": 10_000_000}
            for _ in range(2):  # From the log, then from sealed segments.
                assert kafka_read(broker, name, 3, **wide) == [small, large, b"plain"]
                read_in_part = kafka_read(broker, name, 3, max_partition_fetch_bytes=100_000)
                assert read_in_part == [small, handles[1], b"plain"]
                assert read(client, name, 3) == [small, large, b"plain"]
                topic.seal_and_recycle(3)


def test_a_payload_under_an_open_transaction_is_read_as_any_record(broker: SmqBroker) -> None:
    """Data fault 9, its kind: readers of undecided records got no answer, again and again, and what
    they had asked for was then delivered to nobody until it was sealed."""
    name = "undecided-payload"
    headers: list[tuple[str, str | bytes | None]] = [(k.decode(), v) for k, v in HANDLE_HEADERS]
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    with Cluster(broker.bootstrap) as cluster, smq.connect(broker.bootstrap) as client:
        OneTopic(
            broker, cluster, name, {"smq.reference.delivery": "inline", "smq.seal.ms": "600000"}
        )

        def read(level: str, count: int) -> list[bytes | None]:
            settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
            consumer = KafkaConsumer(settings | {"isolation.level": level})
            consumer.assign([TopicPartition(name, 0, 0)])
            found = consumer.consume(count, timeout=10.0)
            consumer.close()
            return [each.value() for each in found]

        expected = []
        for payload, end in (
            (b"aborted" * 9000, producer.abort_transaction),
            (b"committed" * 9000, producer.commit_transaction),
        ):
            producer.begin_transaction()
            handle = client.upload(name, payload).handle()
            producer.produce(name, handle, headers=headers, partition=0)
            assert producer.flush(30) == 0
            expected.append(payload)
            assert read("read_uncommitted", len(expected)) == expected
            end(30)
        assert read("read_uncommitted", 2) == expected
        assert read("read_committed", 1) == expected[1:]


def test_a_kafka_producer_gets_the_error_code_of_a_refused_handle(broker: SmqBroker) -> None:
    with smq.connect(broker.bootstrap) as client:
        client.create_topic("from-kafka", 1)
        good = client.upload("from-kafka", b"payload")
    told: list[int] = []
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    headers: dict[str, str | bytes | None] = {k.decode(): v for k, v in HANDLE_HEADERS}
    for value in (good.handle(), b"../../secret"):
        producer.produce(
            "from-kafka",
            value,
            headers=headers,
            on_delivery=lambda error, _: told.append(error.code() if error else 0),
        )
        producer.flush(10)
    assert told == [0, int(ErrorCode.INVALID_RECORD)]


# Lifetime.


@pytest.mark.slow
def test_a_payload_goes_with_its_records_its_topic_or_for_want_of_any(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, QUICK) as broker, smq.connect(broker.bootstrap) as client:
        client.create_topic("short", 1, {"retention.ms": "3000"})
        client.create_topic("long", 1)
        client.create_topic("deleted", 1, {"smq.reference.orphan.ms": "1000000"})
        with client.producer() as producer:
            kept = client.upload("long", b"kept")
            orphan = client.upload("long", b"never submitted")
            client.upload("deleted", b"with its topic")
            producer.send_handle("long", kept).result(10)
            producer.send_reference("short", b"with its record").result(10)
            client.delete_topic("deleted")
            everywhere = payloads(broker, "long")
            assert everywhere == {kept.key("long"), orphan.key("long")}
            for name, left in (("deleted", set()), ("long", {kept.key("long")}), ("short", set())):
                eventually(
                    lambda name=name, left=left: payloads(broker, name) == left,
                    f"of {name} what is left is {left}",
                )
            assert read(client, "long", 1) == [b"kept"]
            with pytest.raises(ReferenceRejected, match="was not uploaded within"):
                producer.send_handle("long", kept).result(10)
            with pytest.raises(ReferenceRejected, match="has no payload"):
                producer.send_handle("long", orphan).result(10)


class Load:
    """Uploads, and submits most of it; whoever is killed meanwhile."""

    def __init__(self, broker: SmqBroker, seed: int) -> None:
        self._broker, self._chance = broker, Random(seed)
        self.submitted: dict[str, bytes] = {}
        self.cluster = Cluster(broker.bootstrap)
        self.topic = OneTopic(broker, self.cluster, "load")
        self.failed: BaseException | None = None
        self._thread = Thread(target=self._run)
        self._stopping = False

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._once(self.topic)
        except BaseException as failure:  # noqa: BLE001  (carried over to the main thread)
            self.failed = failure

    def _once(self, topic: OneTopic) -> None:
        number = self._chance.randrange(1 << 40)
        data = self._chance.randbytes(self._chance.randrange(5000))
        try:
            reference = uploaded(store_of(self._broker), topic.name, data, number)
        except StoreError:
            return
        if self._chance.random() < 0.7:
            try:
                answer = topic.produce(handle_batch([reference], time_ms=wall_ms()))
            except BrokerError:
                topic.cluster.forget()
                return
            if answer.error_code == ErrorCode.NONE:
                self.submitted[reference.id] = data


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_neither_orphaned_payloads_nor_dangling_handles_stay_after_kills(
    tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    with SmqBroker(tmp_path, QUICK) as broker:
        with Load(broker, seed) as load:
            eventually(lambda: len(load.submitted) > 20, "payloads are submitted")
            for _ in range(6):
                before = len(load.submitted)
                victim = chance.choice(VICTIMS)
                broker.kill(victim)
                broker.restart()
                eventually(
                    lambda before=before: len(load.submitted) > before + 10,
                    "payloads are submitted again",
                )
        end = load.topic.offset_at(LATEST)
        named = [Reference.of_handle(record.value) for record in load.topic.records(end)]
        load.cluster.close()
        assert load.submitted.keys() <= {each.id for each in named}
        keys = {each.key("load") for each in named}
        eventually(lambda: payloads(broker, "load") == keys, "what no record names is swept")
        with smq.connect(broker.bootstrap) as client:
            assert not Counter(load.submitted.values()) - Counter(read(client, "load", end))
