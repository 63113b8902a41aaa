"""smq snapshot and smq restore, as a person uses them, on brokers that are loaded meanwhile."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import confluent_kafka
import pytest
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.errors import Overrun
from smq.client.names import TopicPartition
from smq.testing.smq_broker import SmqBroker
from tests.app.front.test_server import small_disk
from tests.app.smq_command import SMQ, smq

SMALL = {"wal.segment.bytes": "4MiB", "ring.bytes": "16MiB", "shards": "2"}
DEADLINE_S = 60.0


def run(*arguments: object, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


@contextmanager
def served(directory: Path, **settings: str) -> Iterator[SmqBroker]:
    broker = SmqBroker(directory, SMALL | {k.replace("_", "."): v for k, v in settings.items()})
    try:
        yield broker
    finally:
        broker.close()


def read_all(broker: SmqBroker, topic: str, partitions: int) -> list[list[bytes]]:
    """The values of each partition, in order."""
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    with broker.connect() as client, client.consumer(start="earliest") as consumer:
        consumer.assign([(topic, i) for i in range(partitions)])
        for record in consumer.read_until(consumer.find("latest")):
            found[record.partition].append(bytes(record.value or b""))
    return found


class Load:
    """Producers and a committing consumer, in threads, until `stop`; what was acked when.

    numbered   values 0, 1, … in each of 2 partitions, which lie in two logs
    paired     transactions: one record with the same value in each of 2 partitions
    """

    def __init__(self, broker: SmqBroker) -> None:
        self.broker, self.acked, self.committed = broker, [0, 0], [0]
        self._stop, self._failures = threading.Event(), list[BaseException]()
        with broker.connect() as client:
            client.create_topic("numbered", 2, {"smq.seal.bytes": "1048576"})
            client.create_topic("paired", 2)
            client.create_topic("other", 2)
            with client.producer() as producer:
                for number in range(2000):
                    producer.send("other", b"secret" * 100, partition=number % 2)
        works = (self._produce, self._transact, self._consume)
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001  (Told by stop().)
            self._failures.append(failure)

    def _produce(self) -> None:
        with self.broker.connect() as client, client.producer() as producer:
            while not self._stop.is_set():
                first = self.acked[0]
                sent = [
                    producer.send("numbered", b"%d" % number + b"." * 500, partition=partition)
                    for number in range(first, first + 500)
                    for partition in range(2)
                ]
                for each in sent:
                    each.result(DEADLINE_S)
                self.acked = [first + 500, first + 500]

    def _transact(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.broker.bootstrap, "transactional.id": "pairs"}
        )
        producer.init_transactions(DEADLINE_S)
        while not self._stop.is_set():
            producer.begin_transaction()
            for partition in range(2):
                value = b"%d" % (self.committed[0] + 1)
                producer.produce("paired", value=value, partition=partition)
            producer.commit_transaction(DEADLINE_S)
            self.committed[0] += 1

    def _consume(self) -> None:
        with self.broker.connect() as client, client.consumer(group="readers") as consumer:
            consumer.assign([("numbered", 0), ("numbered", 1)])
            while not self._stop.is_set():
                with suppress(Overrun):  # The producer was faster: the next poll reads them.
                    if len(consumer.poll(0.2)):
                        consumer.commit()

    def wait(self, acked: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.acked[0] < acked or self.committed[0] < 10:
            assert not self._failures
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._failures, self._failures


def pairs_of(broker: SmqBroker) -> list[list[int]]:
    """The values of committed transactions, by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "checks",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    places = [confluent_kafka.TopicPartition("paired", i, 0) for i in range(2)]
    consumer.assign(places)
    found: list[list[int]] = [[], []]
    ended, deadline = set[int](), time.monotonic() + DEADLINE_S
    while len(ended) < 2:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found[message.partition() or 0].append(int(message.value() or b""))
        elif message is not None:
            ended.add(message.partition() or 0)
    consumer.close()
    return found


def committed_offsets(broker: SmqBroker) -> dict[TopicPartition, int]:
    with broker.connect() as client, client.consumer(group="readers") as consumer:
        consumer.assign([("numbered", 0), ("numbered", 1)])
        return consumer.committed()


@pytest.mark.slow
def test_a_snapshot_under_load_is_one_moment_of_all_topics(tmp_path: Path) -> None:
    with served(tmp_path / "a", wal_keep_bytes="0", wal_bytes_max="64MiB") as broker:
        load = Load(broker)
        load.wait(acked=20_000)
        acked, committed = load.acked[0], load.committed[0]
        told = run("snapshot", tmp_path / "s", "--data-dir", broker.data_dir, "--json")
        load.wait(acked=acked + 40_000)  # The WAL's files are recycled meanwhile.
        load.stop()
    facts = json.loads(told)
    assert facts["topics"] is None
    assert facts["file_count"] > 3
    assert not any((tmp_path / "a" / "data" / "pins").iterdir())
    output = run("restore", tmp_path / "s", "--data-dir", tmp_path / "b" / "data")
    assert "restored into" in output
    with served(tmp_path / "b") as restored:
        values = read_all(restored, "numbered", 2)
        for partition in values:
            numbers = [int(value.partition(b".")[0]) for value in partition]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= acked
        assert [len(each) for each in read_all(restored, "other", 2)] == [1000, 1000]
        offsets = committed_offsets(restored)
        assert offsets
        assert all(offset <= len(values[place.partition]) for place, offset in offsets.items())
        pairs = pairs_of(restored)
        assert pairs[0] == pairs[1] == list(range(1, len(pairs[0]) + 1))
        assert len(pairs[0]) >= committed
        with restored.connect() as client, client.producer() as producer:  # It goes on.
            assert producer.send("numbered", b"x", partition=0).result().offset == len(values[0])


@pytest.mark.slow
def test_some_topics_are_taken_and_restored_without_a_byte_of_the_others(tmp_path: Path) -> None:
    with served(tmp_path / "a") as broker:
        load = Load(broker)
        load.wait(acked=2000)
        where = ("--data-dir", broker.data_dir)
        run("snapshot", tmp_path / "all", *where)
        run("snapshot", tmp_path / "one", "--topic", "numbered", *where)
        load.stop()
        assert "there is no topic nothing" in run(
            "snapshot", tmp_path / "none", "--topic", "nothing", *where, exit_code=1
        )
        assert not (tmp_path / "none").exists()
    target = tmp_path / "b" / "data"
    no_topic = ("--topic", "nothing", "--data-dir", target)
    assert "there is no topic" in run("restore", tmp_path / "all", *no_topic, exit_code=1)
    run("restore", tmp_path / "all", "--topic", "numbered", "--data-dir", target)
    run("restore", tmp_path / "one", "--data-dir", tmp_path / "c" / "data")
    for folder in (tmp_path / "one", tmp_path / "b", tmp_path / "c"):
        found = [path for path in folder.rglob("*") if path.is_file()]
        assert len(found) > 3
        assert not [path for path in found if b"secret" in path.read_bytes()]
    for home in ("b", "c"):
        with served(tmp_path / home) as restored:
            for partition in read_all(restored, "numbered", 2):
                numbers = [int(value.partition(b".")[0]) for value in partition]
                assert numbers == list(range(len(numbers)))
                assert len(numbers) >= 2000
            with restored.connect() as client:
                assert [*client.topics()] == ["numbered"]
                client.create_topic("paired", 2)
            assert read_all(restored, "paired", 2) == [[], []]


@pytest.mark.slow
def test_killed_in_the_middle_it_is_no_snapshot_and_the_next_one_is(tmp_path: Path) -> None:
    with served(tmp_path / "a") as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
            with client.producer() as producer:
                for _ in range(1000):
                    producer.send("t", b"v" * 1000)
        where = ["--data-dir", str(broker.data_dir)]
        folder = tmp_path / "s"
        taking = subprocess.Popen([*SMQ, "snapshot", str(folder), *where], env={**os.environ})
        deadline = time.monotonic() + DEADLINE_S
        while not (folder / "unfinished").exists():
            assert time.monotonic() < deadline
        taking.send_signal(signal.SIGKILL)
        taking.wait()
        into = ("--data-dir", tmp_path / "b" / "data")
        assert "not a complete snapshot" in run("restore", folder, *into, exit_code=1)
        run("snapshot", folder, *where)
        assert "not empty; choose another" in run("snapshot", folder, *where, exit_code=1)
        assert "which the broker uses" in run(
            "snapshot", broker.data_dir / "s", *where, exit_code=1
        )
        assert "a broker serves" in run("restore", folder, *where, exit_code=1)
        segment = next((folder / "logs").rglob("*.wal"))
        segment.rename(segment.with_suffix(".away"))
        assert "was not copied completely" in run("restore", folder, *into, exit_code=1)
        segment.with_suffix(".away").rename(segment)
        about = json.loads((folder / "snapshot.json").read_text())
        (folder / "snapshot.json").write_text(json.dumps(about | {"format": 2}))
        assert "made by a newer SMQ" in run("restore", folder, *into, exit_code=1)
    (folder / "snapshot.json").write_text(json.dumps(about))
    assert "is not empty" in run("restore", folder, *where, exit_code=1)
    (tmp_path / "b" / "data").mkdir(parents=True)
    (tmp_path / "b" / "data" / "restoring").write_text("half")
    with pytest.raises(RuntimeError, match="has not finished; run `smq restore` again"):
        SmqBroker(tmp_path / "b", SMALL)
    run("restore", folder, *into)
    with served(tmp_path / "b") as restored:
        assert len(read_all(restored, "t", 1)[0]) == 1000


@pytest.mark.slow
def test_an_unserved_directory_is_snapshot_and_its_clone_runs_beside_its_broker(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "a") as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
            with client.producer() as producer:
                for _ in range(20_000):
                    producer.send("t", b"v" * 1000)
        broker.stop()
        run("snapshot", tmp_path / "s", "--data-dir", broker.data_dir)
        broker.restart()
        for home, *option in (("b",), ("c", "--new-cluster")):
            run("restore", tmp_path / "s", "--data-dir", tmp_path / home / "data", *option)
        with served(tmp_path / "b") as same:
            assert same.status().cluster_id == broker.status().cluster_id
            assert len(read_all(same, "t", 1)[0]) == 20_000
        where = ("--runtime-dir", broker.settings["runtime.dir"], "--port", "0")
        refused = smq("serve", "--data-dir", str(tmp_path / "b" / "data"), *where)
        assert refused.returncode == 1
        assert "another broker with this cluster id" in refused.stderr
        clone = SmqBroker(tmp_path / "c", SMALL)
        assert clone.status().cluster_id != broker.status().cluster_id
        clone.close()
        with broker.connect() as client, client.producer() as producer:
            producer.send("t", b"more").result()
    nothing = tmp_path / "nothing"
    assert "is no data directory" in run(
        "snapshot", tmp_path / "s2", "--data-dir", nothing, exit_code=1
    )
    assert not (tmp_path / "s2").exists()
    assert not nothing.exists()


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind_and_costs_the_broker_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "12m"), served(tmp_path / "a") as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
            with client.producer() as producer:
                for _ in range(10_000):
                    producer.send("t", os.urandom(2000))
        where = ("--data-dir", broker.data_dir)
        folder = tmp_path / "disk" / "s"
        assert "free some space" in run("snapshot", folder, *where, exit_code=1)
        assert not folder.exists()
        assert not any((broker.data_dir / "pins").iterdir())
        run("snapshot", tmp_path / "s", *where)
        target = ("--data-dir", tmp_path / "disk" / "data")
        assert "free some space" in run("restore", tmp_path / "s", *target, exit_code=1)
        assert {each.name for each in (tmp_path / "disk" / "data").iterdir()} == {
            "lock",
            "supervisor.lock",
            "restoring",
        }
        assert len(read_all(broker, "t", 1)[0]) == 10_000


def test_a_transaction_open_at_the_cut_is_aborted_and_its_id_starts_over(tmp_path: Path) -> None:
    """Data fault 24, its kind: its producer may have gone on with it, and committed a part here."""

    def producer_of(broker: SmqBroker) -> confluent_kafka.Producer:
        settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        return producer

    with served(tmp_path / "a") as broker:
        with broker.connect() as client:
            client.create_topic("t", 1)
        producer = producer_of(broker)
        producer.produce("t", b"before")
        producer.commit_transaction(DEADLINE_S)
        producer.begin_transaction()
        producer.produce("t", b"open")
        assert producer.flush(DEADLINE_S) == 0
        run("snapshot", tmp_path / "s", "--data-dir", broker.data_dir)
        producer.abort_transaction(DEADLINE_S)
    run("restore", tmp_path / "s", "--data-dir", tmp_path / "b" / "data")
    with served(tmp_path / "b") as restored:
        producer = producer_of(restored)
        producer.produce("t", b"after")
        producer.commit_transaction(DEADLINE_S)
        with (
            restored.connect() as client,
            client.consumer(start="earliest", isolation_level="read_committed") as consumer,
        ):
            consumer.assign([("t", 0)])
            found = [
                bytes(each.value or b"") for each in consumer.read_until(consumer.find("latest"))
            ]
        assert found == [b"before", b"after"]
