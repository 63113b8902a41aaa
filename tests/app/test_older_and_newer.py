"""Data directories that another version of SMQ has made.

recorded/made_by_5e102aa.tar.xz is a data directory of the commit that it names, before files said
their versions. Its broker was killed (`kill -9`) after 30 records each to the topics `os` and
`disk`, two partitions each, and a commit of the group `readers` at the end of `os`.

recorded/full_log_of_56bb9b9c.tar.xz is one whose log of 16 MiB was full when its broker was killed:
the topic `busy` has 32 records of 400,000 zeros, behind the first of them `open-first` of the
transactional id `open`, whose transaction is open, and later one of an aborted transaction.
"""

import json
import sqlite3
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.words import FRAME_KIND_SKIPPABLE
from shm.kernels.log.recover import SCAN_COLUMNS, scan_frames
from shm.kernels.twin.log import PlainFrame
from smq.app.process.clock import wall_ms
from smq.app.supervisor.datadir import FORMAT_VERSION
from smq.app.supervisor.serve import refuse_newer
from smq.client.client import Client
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import Question
from smq.log.files.checkpoint import FILE_NAME as CHECKPOINT, VERSION
from smq.store.manifest import open_manifest
from smq.store.migrations import MIGRATIONS
from smq.store.store import FILE_NAME as STORE
from smq.testing.smq_broker import SUPERVISOR, SmqBroker
from smq.wire.generated import apis
from smq.wire.generated.end_txn import EndTxnRequest
from tests.app.fake_broker import eventually
from tests.app.smq_command import smq
from tests.broker.one_topic import SETTINGS as SMALL
from tests.log.files.test_checkpoint import newer
from tests.log.files.test_newer import in_wal

RECORDED = Path(__file__).parent / "recorded" / "made_by_5e102aa.tar.xz"
FULL = RECORDED.with_name("full_log_of_56bb9b9c.tar.xz")
FULL_COUNT, FULL_BYTES = 32, 400_000
END_TXN = Question(apis.END_TXN)
SETTINGS = {"ring.bytes": "4MiB", "wal.segment.bytes": "2MiB", "wal.bytes.max": "64MiB"}
SKIPPABLE, REQUIRED = FRAME_KIND_SKIPPABLE | 17, 17
COUNT = 30
LOCK = "supervisor.lock"  # It says who has it, also one that is refused.


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with tarfile.open(RECORDED) as archive:
        archive.extractall(data_dir, filter="data")
    return data_dir


def log_of(data_dir: Path) -> Path:
    return data_dir / "logs" / "0"


def write_unknown(data_dir: Path, kind: int) -> tuple[int, bytes]:
    """Write a frame behind the last one of the log, as a later version may; position and bytes."""
    generation, end = 0, 0
    rows = np.zeros((4096, SCAN_COLUMNS), np.int64)
    for path in sorted(log_of(data_dir).glob("*.wal")):
        data = np.frombuffer(path.read_bytes(), np.uint8)
        count, stopped, generation = scan_frames(
            data, 0, len(data), int(path.stem), generation, rows, new_sums(len(data))
        )
        if count:
            last, end = path, int(path.stem) + int(stopped)
    written = PlainFrame(end, 0, int(generation), 1, kind, 0, b"of a later version" * 17).encode()
    with last.open("r+b") as file:
        file.seek(end - int(last.stem))
        file.write(written)
    return end, written


def newer_meta(data_dir: Path) -> None:
    meta = data_dir / "meta.json"
    meta.write_text(json.dumps({"format_version": FORMAT_VERSION + 1, "what": "is new"}))


def newer_wal(data_dir: Path) -> None:
    meta = data_dir / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_bytes()) | {"wal_format": 2}))


def newer_store(data_dir: Path) -> None:
    with sqlite3.connect(data_dir / STORE) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()


def newer_checkpoint(data_dir: Path) -> None:
    path = log_of(data_dir) / CHECKPOINT
    path.write_bytes(newer(path.read_bytes(), VERSION + 1))


def unknown_frame(data_dir: Path) -> None:
    write_unknown(data_dir, REQUIRED)


def snapshot(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in data_dir.rglob("*")
        if path.is_file() and path.name != LOCK
    }


def texts(client: Client, topic: str, count: int) -> dict[tuple[int, int], bytes]:
    """What the records of a topic begin with, by partition and offset."""
    found = dict[tuple[int, int], bytes]()
    with client.consumer([topic], start="earliest") as consumer:
        while len(found) < count:
            with consumer.poll(timeout_s=30) as batch:
                assert batch, f"only {len(found)} of {count} records came"
                for record in batch:
                    assert record.value is not None
                    found[record.partition, record.offset] = bytes(record.value[:12]).rstrip(b"x")
    return found


def recorded_texts(topic: str) -> dict[tuple[int, int], bytes]:
    return {(i % 2, i // 2): b"%s %d " % (topic.encode(), i) for i in range(COUNT)}


# --- older ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_data_directory_without_format_versions_is_served(data_dir: Path, tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, broker.connect() as client:
        for topic in ("os", "disk"):
            assert texts(client, topic, COUNT) == recorded_texts(topic)
        with client.consumer(group="readers") as consumer:
            consumer.assign([("os", 0), ("os", 1)])
            committed = consumer.committed()
        assert dict(committed) == {("os", 0): COUNT // 2, ("os", 1): COUNT // 2}
    meta = json.loads((data_dir / "meta.json").read_bytes())
    assert (meta["format_version"], meta["wal_format"], meta["generation"]) == (1, 1, 1)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_frames_that_may_be_skipped_are_kept_in_the_middle_and_at_the_end(
    data_dir: Path, tmp_path: Path
) -> None:
    frames = [write_unknown(data_dir, SKIPPABLE)]
    expected = recorded_texts("disk")
    with SmqBroker(tmp_path, SETTINGS) as broker:
        for life in range(2):
            said = f"{life + 1} frames of kinds that this SMQ does not know (0x40000011) are kept"
            eventually(lambda said=said: said in broker.tail(), said)
            with broker.connect() as client:
                assert texts(client, "disk", len(expected)) == expected
                with client.producer() as producer:
                    sent = producer.send("disk", b"new %d " % life, partition=0)
                expected[0, sent.result().offset] = b"new %d " % life
                assert texts(client, "disk", len(expected)) == expected
            if life == 0:
                broker.kill(SUPERVISOR)
                frames.append(write_unknown(data_dir, SKIPPABLE))
                broker.restart()
    for position, written in frames:
        assert in_wal(log_of(data_dir), position, len(written)) == written
    assert sorted(expected.values())[-2:] == [b"new 0 ", b"new 1 "]


def full_under_a_transaction(data_dir: Path) -> tuple[int, int]:
    """The directory with the full log, as if its broker was killed just now; the producer id and
    epoch of the open transaction."""
    data_dir.mkdir()
    with tarfile.open(FULL) as archive:
        archive.extractall(data_dir, filter="data")
    with closing(sqlite3.connect(data_dir / STORE)) as connection, connection:
        connection.execute("UPDATE transactions SET started_ms = ?", (wall_ms(),))
        opened = "SELECT producer_id, epoch FROM transactions WHERE state = 'Ongoing'"
        [(producer_id, epoch)] = connection.execute(opened)
    return producer_id, epoch


def committed_values(client: Client) -> list[bytes]:
    """All values of `busy`, without their zeros."""
    with client.consumer(start="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([("busy", 0)])
        end = consumer.find("latest")
        return [bytes(each.value or b"").rstrip(b"\0") for each in consumer.read_until(end)]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_log_that_is_full_under_an_open_transaction_goes_on(
    tmp_path: Path, *, committed: bool
) -> None:
    """Use fault 2: the version that made it refuses all producers, after a restart too."""
    producer = full_under_a_transaction(tmp_path / "data")
    with SmqBroker(tmp_path, SMALL) as broker, broker.connect() as client:
        assert committed_values(client) == [b""]
        with client.producer() as sender:
            for number in range(COUNT):
                sender.send("busy", (b"new %d" % number).ljust(FULL_BYTES, b"\0"), partition=0)
            sender.flush()
        assert committed_values(client) == [b""]
        with Cluster(broker.bootstrap) as cluster:
            producer_id, epoch = producer
            ending = EndTxnRequest(
                transactional_id="open",
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=committed,
            )
            check(cluster.anyone().ask(END_TXN, ending).error_code)
        expected = [b""] * FULL_COUNT + [b"new %d" % number for number in range(COUNT)]
        expected[1:1] = [b"open-first"] if committed else []
        assert committed_values(client) == expected

        def is_decided() -> bool:
            with open_manifest(broker.data_dir / STORE) as manifest:
                [topic] = manifest.topics()
                [number] = topic.partition_numbers
                return not manifest.undecided(number) and manifest.sealed_end(number) > FULL_COUNT

        eventually(is_decided, "what is decided is sealed")
        assert committed_values(client) == expected


# --- newer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (newer_store, r"store\.sqlite: made by a newer SMQ: its version is \d+, this SMQ knows"),
        (
            newer_checkpoint,
            r"checkpoint: made by a newer SMQ: its format is \d+, this SMQ knows up",
        ),
        (unknown_frame, r"logs/0: made by a newer SMQ: the frame at position \d+ is of kind 17,"),
    ],
)
def test_a_newer_format_is_refused_and_nothing_changes(
    data_dir: Path, change: Callable[[Path], None], said: str
) -> None:
    refuse_newer(data_dir)
    change(data_dir)
    before = snapshot(data_dir)
    with pytest.raises(SystemExit, match=f"^smq: .*{said}.*nothing was changed. Serve it with"):
        refuse_newer(data_dir)
    assert snapshot(data_dir) == before


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "change", [newer_meta, newer_wal, newer_store, newer_checkpoint, unknown_frame]
)
def test_smq_serve_refuses_it_with_a_sentence_and_takes_no_generation(
    data_dir: Path, change: Callable[[Path], None]
) -> None:
    change(data_dir)
    before = snapshot(data_dir)
    # The path of a socket has 107 bytes at most, and directories of tests have long names.
    with tempfile.TemporaryDirectory(prefix="smq-") as runtime_dir:
        settings = SETTINGS | {"data.dir": str(data_dir), "runtime.dir": runtime_dir, "port": "0"}
        options = [f"--{name.replace('.', '-')}={value}" for name, value in settings.items()]
        ended = smq("serve", "--shards=2", *options)
        assert list(Path(runtime_dir).iterdir()) == []
    assert ended.returncode == 1
    (sentence,) = ended.stderr.splitlines()
    assert "made by a newer SMQ: " in sentence
    assert "nothing was changed. Serve it with the SMQ that made it, or choose" in sentence
    assert snapshot(data_dir) == before
