"""A coordinator's server on a loop that a test turns, and who asks it."""

import socket
from pathlib import Path
from random import Random
from typing import Any

from shm.timings import Errors
from smq.app.coordinator.server import (
    Around,
    CoordinatorServer,
)
from smq.app.process.loop import Loop
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.topics import Cluster
from smq.model.catalog import Catalog, Node
from smq.model.config import Config
from smq.model.errors import Unavailable
from smq.model.now import Now
from smq.store.store import Store
from smq.wire.codec import Writer
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    write_create_topics_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from smq.wire.internal.form import Question, encode_question
from smq.wire.internal.frames import (
    KIND_KAFKA,
    InternalReader,
    encode_frame,
    encode_relay,
)
from tests.gateway.coordinator_bench import ASKER

MiB = 1024 * 1024
CONFIG = Config(data_dir=Path("/nowhere"), shards=2, ring_bytes=16 * MiB, wal_segment_bytes=8 * MiB)
NODES = [Node(1, "host", 9092, 7), Node(2, "host", 9093, 8)]


class FailingStore(Store):
    """A store whose next commit fails, if it is told to."""

    fails = False

    def commit(self) -> None:
        if self.fails:
            self.fails = False
            raise Unavailable("store.sqlite", "the disk is full")
        super().commit()


class Peer:
    """The other end of a link, as a shard has it."""

    def __init__(self, bench: "Bench", *, may_relay: bool = True) -> None:
        self._bench = bench
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        bench.server.accepted(theirs, "", may_relay=may_relay)
        bench.peers.append(self)
        self._reader = InternalReader()
        self._frame_id = 0

    def kafka(self, name: str, version: int, request: Any, write: Any) -> int:
        """Relay a request; returns the id of its frame."""
        writer = Writer()
        key = API_BY_NAME[name].key
        write_request_header(RequestHeader(key, version, 77, "client"), writer)
        write(request, version, writer)
        return self.relay(writer.to_bytes())

    def relay(self, request: bytes) -> int:
        self._frame_id += 1
        body = encode_relay(1, ASKER, request)
        self._send(encode_frame(self._frame_id, KIND_KAFKA, body))
        return self._frame_id

    def command(self, question: Question[Any]) -> bytes:
        self._frame_id += 1
        self._send(encode_question(self._frame_id, question))
        return self.answers()[self._frame_id]

    def _send(self, data: bytes) -> None:
        """Send it all; the loop takes what the socket's buffer has no room for."""
        left = memoryview(data)
        while left:
            try:
                left = left[self.sock.send(left) :]
            except BlockingIOError:
                self._bench.turn(1)

    def answers(self, turns: int = 3) -> dict[int, bytes]:
        """What has come back after a few turns of the loop."""
        self._bench.turn(turns)
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return {}
        return {frame.id: frame.body for frame in self._reader.receive(data)}

    def is_closed(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except BlockingIOError:
            return False


class Bench:
    """A coordinator's server on a loop that the test turns, with a clock it sets."""

    def __init__(
        self, path: Path, shard: Path = Path(), epochs: socket.socket | None = None
    ) -> None:
        self.loop = Loop()
        self._chance = Random(1)
        self.peers: list[Peer] = []
        self.now = Now(1_000, 1_700_000_000_000)
        self.store = FailingStore.open(path)
        self.published: list[Catalog] = []
        self.published_access: list[bytes] = []
        self.errors = Errors.private()
        publish = self._publish, self.published_access.append
        around = Around(
            lambda _: NODES,
            *publish,
            lambda: self.now,
            lambda _: shard,
            self.errors,
            epochs=epochs,
        )
        self.server = CoordinatorServer(self.loop, self._build, around)
        self.turn()

    def _build(self) -> Coordinator:
        return Coordinator(
            self.store, CONFIG, Cluster("cluster", 2, 100_000, 1 * MiB), self._chance, self.now
        )

    def _publish(self, value: bytes) -> None:
        self.published.append(Catalog.decode(value))

    def turn(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.loop.run_once(0)


def create(peer: Peer, name: str) -> int:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=-1)]
    )
    return peer.kafka("CreateTopics", 7, request, write_create_topics_request)
