"""The coordinator as a real process: killed, restarted, stopped; its store in the way."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock
from shm.timings import Timings
from smq.app.coordinator.main import coordinator_main
from smq.app.process.child import EXIT_REFUSED, fork
from smq.app.process.inheritance import COORDINATOR, Inheritance, Stop
from smq.model.catalog import Catalog, Topic
from smq.model.config import Config
from smq.store.store import FILE_NAME, Store
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from smq.wire.internal.form import Failed, decode_answer, encode_question
from smq.wire.internal.frames import (
    KIND_KAFKA,
    InternalReader,
    WrittenPeer,
    encode_frame,
    encode_relay,
)
from smq.wire.internal.messages import EnsureTopics
from tests.app.one_child import OneChild
from tests.app.shard_client import request

MiB = 1024 * 1024
DEADLINE_S = 10.0


class Estate(OneChild):
    """What a supervisor would keep: memory and sockets that outlive the process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        config = Config(
            data_dir=directory, ring_bytes=16 * MiB, wal_segment_bytes=8 * MiB, shards=2
        )
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(directory / "c.sock"))
        self.listener.listen()
        self.catalog = CatalogBlock.create(1 * MiB)
        self._ready, ready_fd = os.pipe()
        self.inheritance = Inheritance(
            config=config,
            data_dir=directory,
            cluster_id="cluster",
            runtime_dir=directory,
            generation=0,
            log_count=2,
            nodes=ClusterBlock.create(range(1, 3), os.getpid(), 0),
            catalog=self.catalog,
            access=CatalogBlock.create(4096),
            timings=Timings.create(range(1, 5)),
            logs={},
            tcp_listeners={},
            addresses={},
            unix_listeners={COORDINATOR: self.listener},
            stop=Stop(),
            ready_fd=ready_fd,
        )

    def start(self) -> None:
        self.pid = fork("coordinator", self._run, self.inheritance.stop)

    def _run(self) -> None:
        coordinator_main(self.inheritance)

    def wait_ready(self) -> None:
        assert os.read(self._ready, 1) == b"\1"

    def ensure(self, *names: str) -> dict[str, str | None] | Failed:
        """A question over a link of its own, and its answer."""
        return decode_answer(EnsureTopics, self.ask(encode_question(1, EnsureTopics([*names]))))

    def ask(self, frame: bytes) -> bytes:
        """The body of what a frame over a link of its own is answered."""
        reader = InternalReader()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(DEADLINE_S)
            sock.connect(str(self.directory / "c.sock"))
            sock.sendall(frame)
            while True:
                data = sock.recv(1 << 16)
                assert data, "the coordinator closed the link"
                for answer in reader.receive(data):
                    return answer.body

    def names(self) -> set[str]:
        """The topics in the catalog that everybody sees."""
        return set(Catalog.decode(self.catalog.read()[1]).by_name)

    def close(self) -> None:
        if self.pid:
            self.kill()
        self.listener.close()
        self.inheritance.stop.close()


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Estate]:
    estate = Estate(tmp_path)
    yield estate
    estate.close()


def test_a_process_that_inherits_nothing_names_no_client_and_asks_for_itself(
    estate: Estate,
) -> None:
    estate.start()
    estate.wait_ready()
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    asker = WrittenPeer("User:admin", "127.0.0.1", "PLAINTEXT")
    relay = encode_relay(1, asker, request("Metadata", 12, asked)[4:])
    assert estate.ask(encode_frame(1, KIND_KAFKA, relay)) == b""
    assert estate.names() == set()
    assert estate.ensure("b") == {"b": None}


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_answered(estate: Estate) -> None:
    for life in range(5):
        estate.start()
        estate.wait_ready()
        kept = {f"topic-{each}" for each in range(life)}
        assert estate.names() == kept
        assert estate.ensure(f"topic-{life}") == {f"topic-{life}": None}
        assert estate.names() == {*kept, f"topic-{life}"}
        estate.kill()


def test_a_question_asked_while_the_coordinator_is_down_is_answered_after_its_start(
    estate: Estate,
) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(DEADLINE_S)
        sock.connect(str(estate.directory / "c.sock"))
        sock.sendall(encode_question(1, EnsureTopics(["t"])))
        estate.start()
        [frame] = InternalReader().receive(sock.recv(1 << 16))
        assert decode_answer(EnsureTopics, frame.body) == {"t": None}


def test_a_stop_is_clean_and_takes_the_log_of_the_store_in(estate: Estate) -> None:
    estate.start()
    estate.wait_ready()
    estate.ensure("t")
    os.kill(estate.pid, signal.SIGTERM)
    assert estate.wait_exit() == 0
    assert [path.name for path in estate.directory.glob(f"{FILE_NAME}*")] == [FILE_NAME]


def test_a_store_that_is_none_is_refused_with_a_sentence(
    estate: Estate, capfd: pytest.CaptureFixture[str]
) -> None:
    (estate.directory / FILE_NAME).write_bytes(b"not a database" * 1000)
    estate.start()
    assert estate.wait_exit() == EXIT_REFUSED
    said = capfd.readouterr().err
    assert "file is not a database" in said
    assert "Traceback" not in said


def test_a_store_of_another_directory_is_refused_with_a_sentence(
    estate: Estate, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(estate.directory / FILE_NAME)
    store.add_topic(Topic("t", UUID(int=1), (1,), (5,)), 0)
    store.commit()
    store.close()
    estate.start()
    assert estate.wait_exit() == EXIT_REFUSED
    said = capfd.readouterr().err
    assert "has a partition in log 5, and meta.json says that there are 2 logs" in said
    assert "Traceback" not in said
