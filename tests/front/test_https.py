"""TLS between sockets and a protocol that gets plain bytes, against Python's client."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from smq.front import https as module
from smq.front.https import Handshakes, TlsConnection
from tests.security.tls_bench import (
    Client,
    Files,
    ask_for_new_keys,
    client_context,
    context_of,
    make_files,
)

WAIT_S = 30.0
SOCKET_BYTES = 16 * 1024  # What a client does not read waits here, and then in our memory.
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LARGE = bytes(range(256)) * 20_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("keys"))


class Echo(asyncio.Protocol):
    """Sends back what it gets. With `pauses` it takes a moment's rest after each piece."""

    pauses = False
    made: list["Echo"]

    def __init__(self) -> None:
        self.received, self.is_lost = 0, False
        self.made.append(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.transport.write(data)
        if self.pauses:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)
        if data.endswith(b"END"):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class Served:
    """A server; `echoes` are the protocols that were made."""

    def __init__(self, files: Files, port: int, handshakes: Handshakes, echoes: list[Echo]) -> None:
        self.files, self.port, self.handshakes, self.echoes = files, port, handshakes, echoes
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self, context: ssl.SSLContext | None = None) -> Ends:
        name = None if context is None else "localhost"
        made = asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=name)
        reader, writer = await asyncio.wait_for(made, WAIT_S)
        self.writers.append(writer)
        return reader, writer

    async def connect_in_tls(self) -> Ends:
        return await self.connect(client_context(self.files))


@asynccontextmanager
async def served(files: Files, *, pauses: bool = False) -> AsyncIterator[Served]:
    context, echoes = context_of(files), list[Echo]()

    class Made(Echo):
        made = echoes

    Made.pauses = pauses
    handshakes = Handshakes(lambda: context)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    server = await asyncio.get_running_loop().create_server(
        lambda: TlsConnection(handshakes, Made), sock=listener
    )
    made = Served(files, listener.getsockname()[1], handshakes, echoes)
    yield made
    server.close()
    for writer in made.writers:
        writer.close()
    for writer in made.writers:
        with suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    end_s = asyncio.get_running_loop().time() + WAIT_S
    while not condition():
        assert asyncio.get_running_loop().time() < end_s
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 3 * WAIT_S))


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [False, True])
def test_bytes_pass_both_ways_and_the_last_ones_before_the_end(
    files: Files, *, pauses: bool
) -> None:
    async def work() -> None:
        async with served(files, pauses=pauses) as server:
            reader, writer = await server.connect_in_tls()
            writer.write(LARGE + b"END")
            assert await reader.readexactly(len(LARGE) + 3) == LARGE + b"END"
            assert await reader.read() == b""
            await until(lambda: server.echoes[0].is_lost)
            assert not server.handshakes._newcomers

    run(work())


def test_a_client_without_tls_is_closed_beside_others(files: Files) -> None:
    async def work() -> None:
        async with served(files) as server:
            reader, writer = await server.connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
            with suppress(ConnectionError):
                assert b"HTTP" not in await asyncio.wait_for(reader.read(), WAIT_S)
            reader, writer = await server.connect_in_tls()
            writer.write(b"still")
            assert await reader.readexactly(5) == b"still"
            assert len(server.echoes) == 1

    run(work())


def test_a_handshake_that_never_ends_is_closed(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.1)

    async def work() -> None:
        async with served(files) as server:
            reader, writer = await server.connect()
            client = Client(client_context(files))
            client.shake_hands()
            writer.write(client.outgoing.read()[:100])
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            await until(lambda: not server.handshakes._newcomers)

    run(work())


def test_the_oldest_newcomer_makes_room(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEWCOMERS_MAX", 3)

    async def work() -> None:
        async with served(files) as server:
            silent = [await server.connect() for _ in range(3)]
            await until(lambda: len(server.handshakes._newcomers) == 3)
            reader, writer = await server.connect_in_tls()
            writer.write(b"in")
            assert await reader.readexactly(2) == b"in"
            with suppress(ConnectionError):
                assert await asyncio.wait_for(silent[0][0].read(), WAIT_S) == b""
            await until(lambda: len(server.handshakes._newcomers) == 2)

    run(work())


class Silent:
    """A newcomer that a table may end."""

    def __init__(self) -> None:
        self.is_ended = False

    def abort(self) -> None:
        self.is_ended = True


def test_newcomers_that_come_at_once_are_bounded_and_the_largest_network_makes_room(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEWCOMERS_MAX", 10)
    handshakes = Handshakes(lambda: context_of(files))
    few, many = [Silent() for _ in range(3)], [Silent() for _ in range(50)]
    for network, silent in (("10.0.0.1", few), ("10.0.0.2", many)):
        for each in silent:
            handshakes.begin(each, network)  # type: ignore[arg-type]
    assert len(handshakes._newcomers) == 10
    assert not any(each.is_ended for each in few)
    assert [each.is_ended for each in many] == [True] * 43 + [False] * 7


class Stepping(Silent):
    """A newcomer whose handshake has a step to take, for which it is noted."""

    def __init__(self, name: str, steps: list[str]) -> None:
        super().__init__()
        self._name, self._steps = name, steps

    def shake_hands(self) -> None:
        self._steps.append(self._name)


def test_networks_take_turns_at_the_steps_of_handshakes(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKES_S", 0.0001)
    handshakes, steps = Handshakes(lambda: context_of(files)), list[str]()

    async def work() -> None:
        made = [Stepping(name, steps) for name in ("a1", "a2", "a3", "a4", "b1", "b2")]
        for each in made:
            handshakes.begin(each, each._name[0])  # type: ignore[arg-type]
            handshakes.want_step(each)  # type: ignore[arg-type]
        handshakes.end(made[1])  # type: ignore[arg-type]
        await until(lambda: len(steps) == 5)

    run(work())
    assert steps == ["a1", "b1", "a3", "b2", "a4"]


def shake_hands(client: Client, sock: socket.socket) -> None:
    while client.tls.cipher() is None or client.outgoing.pending:
        with suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        if sent := client.outgoing.read():
            sock.sendall(sent)
        else:
            client.incoming.write(sock.recv(1 << 16))
    client.tls.do_handshake()


def test_the_answers_to_a_flood_of_new_keys_do_not_grow_the_process(files: Files) -> None:
    """Its sender reads nothing; others are served meanwhile."""

    def flood(port: int) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        sock.settimeout(1.0)
        sock.connect(("127.0.0.1", port))
        client = Client(client_context(files))
        shake_hands(client, sock)
        for _ in range(40_000):  # A megabyte, and as much for an answer.
            ask_for_new_keys(client)
        with suppress(TimeoutError):
            sock.sendall(client.outgoing.read())
        return sock

    async def work() -> None:
        async with served(files) as server:
            sock = await asyncio.to_thread(flood, server.port)
            [echo] = server.echoes
            await until(lambda: echo.transport.get_write_buffer_size() > 0)
            reader, writer = await server.connect_in_tls()
            for _ in range(100):
                writer.write(b"other")
                assert await asyncio.wait_for(reader.readexactly(5), WAIT_S) == b"other"
            assert echo.transport.get_write_buffer_size() < 256 * 1024
            sock.close()
            await until(lambda: echo.is_lost)

    run(work())
