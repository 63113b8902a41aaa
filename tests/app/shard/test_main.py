"""A shard as a real process: starts from the supervisor's memory, serves, stops, is killed."""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock, Node
from shm.kernels.base.words import SPACE_UNLIMITED
from shm.segment import LogMemory
from shm.timings import Timings
from smq.app.process.asker import Asker
from smq.app.process.child import fork
from smq.app.process.inheritance import (
    COORDINATOR,
    Inheritance,
    Stop,
    attach_name,
    shard_name,
    socket_path,
)
from smq.app.shard.main import PAST_CACHE_BLOCKS, _limits, shard_main
from smq.client.wait import wait_readable
from smq.log.files.segment_files import WalLimits
from smq.log.losses import BOOT_FILE
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.segments import Segment
from smq.security.listeners import Endpoint
from smq.store.store import FILE_NAME, Store
from smq.testing.page_cache import is_cached
from smq.wire.generated.metadata import MetadataRequest
from smq.wire.internal.form import Question, by_name, decode_question
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.manifest import SyncManifest
from smq.wire.internal.messages import Partitions, PartitionState
from tests.app.fake_broker import eventually
from tests.app.fake_peers import answer_body, answered_by_a_thread, listen
from tests.app.one_child import OneChild
from tests.app.shard_client import decoded, request
from tests.shard.shard_bench import batch, catalog, produce_request, responses, topic

MiB = 1024 * 1024
RING_BYTES, SEGMENT_BYTES = 2 * MiB, 1 * MiB
DEADLINE_S = 20.0
NODE = 1
SEALED = Segment(1, 0, 500, "raw", "a", 100, 9, 500, 0, 5, 0, 5)


class Estate(OneChild):
    """What a supervisor would keep: memory and sockets that outlive the process."""

    def __init__(self, directory: Path) -> None:
        config = Config(
            data_dir=directory,
            ring_bytes=RING_BYTES,
            wal_segment_bytes=SEGMENT_BYTES,
            wal_bytes_max=64 * MiB,
            shards=1,
        )
        (directory / "logs").mkdir()
        Store.open(directory / FILE_NAME).close()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.unix_listener = listen(socket_path(directory, shard_name(NODE)))
        self.attach_listener = listen(socket_path(directory, attach_name(NODE)))
        self.catalog = CatalogBlock.create(1 * MiB)
        self._ready, ready_fd = os.pipe()
        self.inheritance = Inheritance(
            config=config,
            data_dir=directory,
            cluster_id="cluster",
            runtime_dir=directory,
            generation=1,
            log_count=1,
            nodes=ClusterBlock.create(range(1, 2), os.getpid(), 0),
            catalog=self.catalog,
            access=CatalogBlock.create(4096),
            timings=Timings.create(range(1, 5)),
            logs={0: LogMemory.create(0, RING_BYTES, SEGMENT_BYTES, 1024)},
            tcp_listeners={NODE: {"PLAINTEXT": self.listener}},
            addresses={"PLAINTEXT": {NODE: Endpoint(*self.listener.getsockname())}},
            unix_listeners={
                shard_name(NODE): self.unix_listener,
                attach_name(NODE): self.attach_listener,
            },
            stop=Stop(),
            ready_fd=ready_fd,
        )

    def publish(self, *topics: Topic) -> None:
        self.catalog.publish(catalog(*topics).encode())

    def start(self, generation: int = 1) -> None:
        share = replace(self.inheritance, generation=generation, stop=Stop())
        port = self.listener.getsockname()[1]
        share.nodes.set_node(Node(NODE, os.getpid(), port, generation, 0))
        self.pid = fork(shard_name(NODE), lambda: shard_main(share, NODE), share.stop)
        share.stop.close()

    def is_ready(self, wait_s: float) -> bool:
        """Whether the process has reported, since this was last asked."""
        if not wait_readable([self._ready], wait_s):
            return False
        return os.read(self._ready, 1) == b"\1"

    def partitions(self) -> list[PartitionState]:
        """What the shard says it leads."""
        asker = Asker(self.inheritance.socket_path(shard_name(NODE)), DEADLINE_S)
        found, _ = asker.ask(Partitions())
        asker.close()
        return found.partitions

    def client(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), DEADLINE_S)

    def close(self) -> None:
        if self.pid:
            self.kill()
        self.listener.close()
        self.unix_listener.close()
        self.attach_listener.close()
        self.inheritance.stop.close()
        os.close(self.inheritance.ready_fd)
        os.close(self._ready)


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Estate]:
    estate = Estate(tmp_path)
    yield estate
    estate.close()


def receive(sock: socket.socket) -> bytes:
    """One answer with its size."""
    with sock.makefile("rb") as stream:
        size = stream.read(4)
        return size + stream.read(int.from_bytes(size))


def produce(sock: socket.socket, value: bytes) -> int:
    """The offset of a record that was acknowledged."""
    sock.sendall(produce_request({"one": {0: batch(value)}}))
    [(_, response)] = responses(receive(sock))
    [answer] = response.responses[0].partition_responses
    assert answer.error_code == 0
    return int(answer.base_offset)


def test_a_log_takes_its_part_of_the_page_cache_and_of_its_shards_blocks(estate: Estate) -> None:
    share = replace(estate.inheritance, log_count=3)

    def limits(page_cache_bytes: int) -> WalLimits:
        config = replace(share.config, page_cache_bytes=page_cache_bytes)
        return _limits(replace(share, config=config))

    bounded = limits(12 * MiB)
    assert (bounded.cached_bytes_max, bounded.blocks) == (4 * MiB, PAST_CACHE_BLOCKS)
    assert limits(-1).cached_bytes_max == SPACE_UNLIMITED


def wal_files(estate: Estate) -> list[Path]:
    return sorted((estate.inheritance.data_dir / "logs").rglob("*.wal"))


def test_a_shard_drops_full_segments_beyond_its_bound(estate: Estate) -> None:
    config = replace(estate.inheritance.config, page_cache_bytes=3 * SEGMENT_BYTES)
    estate.inheritance = replace(estate.inheritance, config=config)
    estate.publish(topic("one"))
    estate.start()
    assert estate.is_ready(DEADLINE_S)
    with estate.client() as client:
        while len(wal_files(estate)) < 7:
            produce(client, bytes(SEGMENT_BYTES // 4))
    first = wal_files(estate)[0]
    eventually(lambda: not is_cached(first), "the oldest segment stays in the page cache")


def test_it_serves_what_the_catalog_says_and_stops_when_asked(estate: Estate) -> None:
    estate.publish(topic("one"))
    estate.start()
    assert estate.is_ready(DEADLINE_S)
    with estate.client() as client:
        assert [produce(client, b"a"), produce(client, b"b")] == [0, 1]
        client.sendall(request("Metadata", 9, MetadataRequest(topics=None)))
        metadata = decoded("Metadata", 9, receive(client)[4:])
        assert [broker.port for broker in metadata.brokers] == [estate.listener.getsockname()[1]]
        assert [each.name for each in metadata.topics if not each.is_internal] == ["one"]
        os.kill(estate.pid, signal.SIGTERM)
        assert client.recv(1) == b""
    assert estate.wait_exit() == 0


def test_it_waits_for_the_first_catalog(estate: Estate) -> None:
    estate.start()
    assert estate.partitions() == []  # It runs, its logs are open …
    assert not estate.is_ready(0)  # … and clients are not served yet.
    with estate.client() as client:
        client.sendall(produce_request({"one": {0: batch(b"early")}}))
        estate.publish(topic("one"))
        assert estate.is_ready(DEADLINE_S)
        [(_, response)] = responses(receive(client))
    assert response.responses[0].partition_responses[0].error_code == 0


def test_it_takes_each_catalog_that_is_published(estate: Estate) -> None:
    estate.publish(topic("one"))
    estate.start()
    assert estate.is_ready(DEADLINE_S)
    assert [state.number for state in estate.partitions()] == [1]
    estate.publish(topic("one"), topic("two", range(2, 4)))
    assert [state.number for state in estate.partitions()] == [1, 2, 3]


def test_a_shard_that_cannot_read_the_store_ends_unless_the_broker_has_served(
    estate: Estate, capfd: pytest.CaptureFixture[str]
) -> None:
    store = estate.inheritance.data_dir / FILE_NAME
    store.unlink()
    estate.publish(topic("one"))
    estate.start()
    assert estate.wait_exit() == 1, "new records could get the offsets of sealed ones"
    assert capfd.readouterr().err.startswith("where sealed segments end is not known: ")
    estate.inheritance = replace(estate.inheritance, has_served=True)
    estate.start(generation=2)
    assert estate.is_ready(DEADLINE_S)


def test_a_partition_goes_on_behind_what_is_sealed_though_its_log_is_empty(
    estate: Estate,
) -> None:
    store = Store.open(estate.inheritance.data_dir / FILE_NAME)
    store.add_topic(topic("one"), created_ms=0)
    store.manifest.commit_segments([SEALED])
    store.commit()
    store.close()
    asked: list[Question[Any]] = []

    def answer(frame: InternalFrame) -> bytes:
        asked.append(decode_question(frame.body, by_name(SyncManifest)))
        return answer_body(answer=True)

    estate.start()
    with answered_by_a_thread(estate.inheritance.socket_path(COORDINATOR), answer):
        estate.publish(topic("one"))
        assert estate.is_ready(DEADLINE_S)
    assert asked == [SyncManifest()]
    with estate.client() as client:
        assert produce(client, b"new") == SEALED.end_offset
    estate.kill()
    estate.start(generation=2)
    assert estate.is_ready(DEADLINE_S)
    with estate.client() as client:
        assert produce(client, b"newer") == SEALED.end_offset + 1


def test_a_shard_whose_log_cannot_be_read_says_so_and_ends_to_be_started_again(
    estate: Estate, capfd: pytest.CaptureFixture[str]
) -> None:
    estate.publish(topic("one"))
    unreadable = estate.inheritance.data_dir / "logs" / "0" / BOOT_FILE
    unreadable.mkdir(parents=True)  # Which is no file.
    estate.start()
    assert estate.wait_exit() == 1, "a refusal would end the broker"
    said = capfd.readouterr().err
    assert said.startswith("log 0 cannot be opened: ")
    assert str(unreadable) in said
    unreadable.rmdir()
    estate.start(generation=2)
    assert estate.is_ready(DEADLINE_S)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_one_goes_on_where_the_last_one_ended(estate: Estate, how: signal.Signals) -> None:
    estate.publish(topic("one"))
    for life in range(3):
        estate.start(generation=life + 1)
        assert estate.is_ready(DEADLINE_S)
        with estate.client() as client:
            assert produce(client, b"x") == life
        os.kill(estate.pid, how)
        assert estate.wait_exit() == (-how if how == signal.SIGKILL else 0)
