"""A shard's server in the test's own loop, and clients that speak raw bytes to it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from smq.app.shard.server import ShardServer
from smq.model.catalog import Catalog, Topic
from smq.shard.shard import Shard
from smq.wire.codec import Writer
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from smq.wire.internal.form import Question
from tests.app.fake_peers import TidyLoop, turn_until
from tests.shard.shard_bench import new_shard

Answered = Callable[[Any], None]


class FakePeers:
    """Coordinator and sealer, who answer when the test says so."""

    def __init__(self) -> None:
        self.relayed: list[tuple[bytes, Answered]] = []
        self.asked: list[tuple[Question[Any], Answered]] = []
        self.asked_coordinator: list[tuple[Question[Any], Answered]] = []

    def take_orders(self, take: Callable[[Any, Any], None]) -> None:
        self.order = take

    def relay(self, _host: str, request: memoryview, answered: Answered) -> None:
        self.relayed.append((bytes(request), answered))

    def ask_sealer(self, question: Question[Any], answered: Answered) -> None:
        self.asked.append((question, answered))

    def ask_coordinator(self, question: Question[Any], answered: Answered) -> None:
        self.asked_coordinator.append((question, answered))

    def close(self) -> None:
        pass


class ServerBench:
    """A server, its loop and its clients, which come from `source`."""

    source = "127.0.0.1"

    def __init__(self, directory: Path, *topics: Topic, **config: int) -> None:
        self.loop = TidyLoop()
        self.peers = FakePeers()
        self.shard = self.make_shard(directory, *topics, **config)
        self._next: Catalog | None = None
        self.published = np.array([self.shard.catalog_version])
        self.server = ShardServer(
            self.loop,
            self.shard,
            self.peers,  # type: ignore[arg-type]
            self._read_catalog,
            self.published,
        )
        self._sleep, self.loop.sleep = self.loop.sleep, lambda _: False
        self._turn_s = 0.0
        listener = socket.create_server(("127.0.0.1", 0))
        self.loop.opened.append(listener)
        self.address = listener.getsockname()
        self.server.clients.listen(listener)

    def make_shard(self, directory: Path, *topics: Topic, **config: Any) -> Shard:
        return new_shard(directory, *topics, **config)

    def _read_catalog(self) -> bool:
        if self._next is None:
            return False
        self.shard.take_catalog(self._next, self.shard.catalog_version + 1)
        self._next = None
        return True

    def close(self) -> None:
        self.server.stop()
        for connection in list(self.server.clients.by_fd.values()):
            connection.close()
        self.loop.close()
        for log in self.shard.logs.values():
            log.close()

    def publish(self, catalog: Catalog) -> None:
        self._next = catalog
        self.published += 1

    def client(self, receive_bytes: int | None = None) -> "Client":
        sock = socket.socket()
        sock.bind((self.source, 0))
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # What is sent is there.
        sock.connect(self.address)
        sock.setblocking(False)
        self.loop.opened.append(sock)
        before = len(self.server.clients)
        turn_until(self.loop, lambda: len(self.server.clients) > before)
        return Client(self.loop, sock)

    def let_kernel_sleep(self) -> None:
        """Have a kernel wait in the loop's place, a moment in each turn.

        Most tests do not: what comes then would be taken in a turn that ends later.
        """
        self.loop.sleep, self._turn_s = self._sleep, 0.001

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.run_once(self._turn_s)


BenchT = TypeVar("BenchT", bound=ServerBench)


@contextmanager
def benches(directory: Path, kind: type[BenchT]) -> Iterator[Callable[..., BenchT]]:
    """Makes benches with these topics and settings; they are closed at the end."""
    made: list[BenchT] = []

    def make(*topics: Topic, **config: int) -> BenchT:
        made.append(kind(directory / str(len(made)), *topics, **config))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def request(name: str, version: int, message: Any, correlation: int = 1) -> bytes:
    """A request with its size."""
    api = API_BY_NAME[name]
    writer = Writer()
    write_request_header(RequestHeader(api.key, version, correlation, "test"), writer)
    api.write_request(message, version, writer)
    body = writer.to_bytes()
    return len(body).to_bytes(4) + body


def decoded(name: str, version: int, body: bytes) -> Any:
    """A response."""
    api = API_BY_NAME[name]
    _, at = read_response_header(body, 0, api.key, version)
    return api.read_response(body, at, version)


class Client:
    """One connection. Sends and reads without blocking the loop it shares with the server."""

    def __init__(self, loop: TidyLoop, sock: socket.socket) -> None:
        self.loop, self.socket = loop, sock
        self.received = b""
        self.is_closed = False

    def send(self, data: bytes) -> None:
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                self.loop.run_once(0)

    def pull(self) -> None:
        """Take what is there."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        self.is_closed |= not data
        self.received += data

    def frames(self) -> list[bytes]:
        """The whole answers received so far, without their sizes."""
        found, at = [], 0
        while len(self.received) - at >= 4:
            size = int.from_bytes(self.received[at : at + 4])
            if len(self.received) - at < 4 + size:
                break
            found.append(self.received[at + 4 : at + 4 + size])
            at += 4 + size
        return found

    def correlations(self) -> list[int]:
        return [int.from_bytes(frame[:4]) for frame in self.frames()]

    def wait(self, count: int) -> list[bytes]:
        """So many answers."""

        def arrived() -> bool:
            self.pull()
            return len(self.frames()) >= count or self.is_closed

        turn_until(self.loop, arrived)
        return self.frames()

    def wait_closed(self) -> None:
        def closed() -> bool:
            self.pull()
            return self.is_closed

        turn_until(self.loop, closed)


def fetch(  # noqa: PLR0913  (what tests vary of a fetch)
    name: str,
    offset: int = 0,
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    correlation: int = 1,
    isolation_level: int = 0,
) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    asked = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation_level,
        max_bytes=1 << 30,
        topics=[FetchTopic(topic=name, partitions=[partition])],
    )
    return request("Fetch", 12, asked, correlation)


def fetched(frame: bytes) -> Any:
    return decoded("Fetch", 12, frame).responses[0].partitions[0]


def versions(correlation: int = 1) -> bytes:
    return request("ApiVersions", 0, ApiVersionsRequest(), correlation)


def settle(bench: ServerBench, *clients: Client) -> None:
    """Let everything happen that happens by itself."""
    for _ in range(5):
        bench.turn()
        for client in clients:
            client.pull()
