"""Connections that ask nothing, on a real uvicorn: none of them keeps others out."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import h11
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server

from smq.front import connection
from smq.front.connection import (
    HEAD_BYTES_MAX,
    HEAD_LINES_MAX,
    HttpConnection,
    _Parser,
)
from smq.front.turns import standing_of
from tests.front.never import Never

WAIT_S = 20
LONG_BYTES = 50_000_000  # More than lies in sockets.
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once; at /wait, when the body has come to its end; at /long, with much. At /known
    somebody has logged in; /cut is cut in the middle."""
    standing_of(scope).is_known = scope["path"] == "/known"
    if scope["path"] == "/wait":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/cut":
        length = [(b"content-length", b"9")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        cut = standing_of(scope).cut
        assert cut is not None
        cut()
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    text = "x" * LONG_BYTES if scope["path"] == "/long" else "answer"
    await PlainTextResponse(text)(scope, receive, send)


class Clients:
    """Clients of a server; how many it knows of."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._port = server.servers[0].sockets[0].getsockname()[1]
        self._writers: list[asyncio.StreamWriter] = []
        self._unseen: list[socket.socket] = []

    @property
    def known(self) -> int:
        return len(self._server.server_state.connections)

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return reader, writer

    def connect_unseen(self) -> None:
        """Connect before the server gets to see it."""
        self._unseen.append(socket.create_connection(("127.0.0.1", self._port)))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        for unseen in self._unseen:
            unseen.close()


@asynccontextmanager
async def serving(rest_s: int, protocol: Any = HttpConnection) -> AsyncIterator[Clients]:
    config = Config(
        answer, http=protocol, port=0, lifespan="off", log_config=None, timeout_keep_alive=rest_s
    )
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    clients = Clients(server)
    try:
        yield clients
    finally:
        clients.close()
        await server.shutdown()


async def asked(client: Client, request: bytes = REQUEST) -> bytes:
    """The answer, "" when there was none."""
    reader, writer = client
    writer.write(request)
    with suppress(ConnectionError):
        async with asyncio.timeout(WAIT_S):
            head = await reader.readuntil(b"answer")
            return head.partition(b"\r\n")[0]
    return b""


async def is_closed(client: Client) -> bytes:
    """What it still got before it was closed, or reset: of one who sends, not all may be read."""
    async with asyncio.timeout(WAIT_S):
        with suppress(ConnectionResetError):
            return await client[0].read()
    return b""


@pytest.mark.parametrize("said", [b"", b"\r\n", REQUEST[:-2], REQUEST + REQUEST[:-2]])
def test_a_client_that_does_not_finish_its_request_is_disconnected(said: bytes) -> None:
    async def run() -> None:
        async with serving(rest_s=1) as clients:
            client = await clients.connect()
            client[1].write(said)
            assert (await is_closed(client)).count(b"200 OK") == said.count(REQUEST)

    asyncio.run(run())


def test_an_answer_that_is_cut_is_not_reported_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with serving(rest_s=20) as clients:
            client = await clients.connect()
            client[1].write(REQUEST.replace(b" / ", b" /cut "))
            body = await is_closed(client)
            assert body.partition(b"\r\n\r\n")[2] == b""

    asyncio.run(run())  # A server ends when all its answers have.
    assert not [each for each in caplog.records if each.name.startswith("uvicorn")]


def test_one_whose_head_trickles_is_sent_away() -> None:
    async def run() -> None:
        async with serving(rest_s=1) as clients:
            reader, writer = await clients.connect()
            trickling = asyncio.create_task(trickle(writer))
            assert await is_closed((reader, writer)) == b""
            trickling.cancel()

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(REQUEST[:-2])
        with suppress(ConnectionError):
            while True:
                writer.write(b"X: y\r\n")
                await asyncio.sleep(0.05)

    asyncio.run(run())


def test_a_connection_being_answered_does_not_count_as_resting() -> None:
    async def run() -> None:
        async with serving(rest_s=1) as clients:
            busy, silent = await clients.connect(), await clients.connect()
            head = b"PUT /wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
            busy[1].write(head)
            assert await is_closed(silent) == b""
            busy[1].write(b"a")
            assert await is_closed(await clients.connect()) == b""
            assert await asked(busy, b"b") == b"HTTP/1.1 200 OK"
            assert await asked(busy) == b"HTTP/1.1 200 OK"

    asyncio.run(run())


@pytest.mark.slow
def test_a_client_may_finish_its_body_after_its_answer() -> None:
    async def run() -> None:
        async with serving(rest_s=2) as clients:
            sending, silent = await clients.connect(), await clients.connect()
            head = b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
            assert await asked(sending, head) == b"HTTP/1.1 200 OK"
            while not silent[0].at_eof():  # Longer than one may rest.
                sending[1].write(b"x")
                with suppress(TimeoutError):
                    await asyncio.wait_for(silent[0].read(1), 0.05)
            sending[1].write(b"x")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sending[0].read(1), 0.1)
            assert await is_closed(sending) == b""

    asyncio.run(run())


def test_those_that_rest_longest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 8)

    async def run() -> None:
        async with serving(rest_s=60) as clients:
            first = await clients.connect()
            assert await asked(first) == b"HTTP/1.1 200 OK"
            silent = [await clients.connect() for _ in range(20)]
            assert await is_closed(first) == b""
            for each in silent[:10]:
                assert await is_closed(each) == b""
            for each in [silent[-1], await clients.connect()]:
                assert await asked(each) == b"HTTP/1.1 200 OK"

    asyncio.run(run())


def test_accepting_many_connections_examines_each_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,500 connections at once kept `/health/live` waiting for four seconds: each new one looked
    at all others."""
    most, count, looks = 100, 400, 0
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", most)

    class Counted(HttpConnection):
        @property
        def rests(self) -> bool:
            nonlocal looks
            looks += 1
            return super().rests

    async def run() -> None:
        async with serving(rest_s=60, protocol=Counted) as clients:
            for _ in range(count):
                clients.connect_unseen()
            assert await asked(await clients.connect()) == b"HTTP/1.1 200 OK"
        assert count < looks < 10 * count

    asyncio.run(run())


def test_those_that_are_closing_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 2)

    async def run() -> None:
        async with serving(rest_s=60) as clients:
            for _ in range(5):
                reader, writer = await clients.connect()
                writer.write(b"GET /long HTTP/1.0\r\nHost: localhost\r\n\r\n")
                await reader.readexactly(100)
            assert clients.known == 5
            assert await asked(await clients.connect()) == b"HTTP/1.1 200 OK"

    asyncio.run(run())


def test_a_client_that_does_not_read_its_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "DEAF_MS", 1000)

    async def run() -> None:
        async with serving(rest_s=1) as clients:
            reader, writer = await clients.connect()
            writer.write(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readexactly(100)
            async with asyncio.timeout(WAIT_S):
                while clients.known:  # noqa: ASYNC110  (uvicorn tells nobody.)
                    await asyncio.sleep(0.01)

    asyncio.run(run())


def test_a_client_that_reads_its_answer_slowly_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Door fault 9: a byte now and then is progress to TCP."""
    monkeypatch.setattr(connection, "SLOW_S", 0.5)

    async def run() -> None:
        async with serving(rest_s=60) as clients:
            reader, writer = await clients.connect()
            writer.write(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(WAIT_S):
                with suppress(ConnectionError):
                    await reader.readexactly(1)
                    while clients.known:
                        await reader.readexactly(1)
                        await asyncio.sleep(0.01)

    asyncio.run(run())


def test_bytes_that_are_no_http_are_answered_with_400_and_json() -> None:
    async def run() -> None:
        async with serving(rest_s=60) as clients:
            client = await clients.connect()
            client[1].write(b"\x16\x03\x01\0\xa5\n\n")
            head, _, body = (await is_closed(client)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert json.loads(body) == {"error": "Invalid HTTP request received."}

    asyncio.run(run())


class Reset(asyncio.Transport):
    """A transport whose peer has reset the connection: its socket knows the address no more."""

    def __init__(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        super().__init__({"socket": sock, "peername": peer})

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("peer", "address", "network"),
    [
        ("::1", "0:0:0:0:0:0:0:1", "0:0:0:0"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
    ],
)
def test_a_client_has_the_address_that_rules_name_though_its_socket_was_reset(
    peer: str, address: str, network: str
) -> None:
    async def work() -> None:
        config = Config(answer, http=HttpConnection, lifespan="off", log_config=None)
        config.load()
        made = HttpConnection(config=config, server_state=Server(config).server_state, app_state={})
        with socket.socket() as sock:  # It has no peer.
            made.connection_made(Reset(sock, (peer, 5)))
            assert made.client == (address, 5)
            assert made.address == network
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            made._stop_timer()

    asyncio.run(work())


class Watched(HttpConnection):
    """Counts how many events each of its turns has parsed."""

    counts: list[int]

    def handle_events(self) -> None:
        before = self._parser.left
        super().handle_events()
        self.counts.append(before - self._parser.left)


def chunked(path: bytes, count: int) -> bytes:
    head = b"PUT %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path
    return head + b"1\r\nx\r\n" * count + b"0\r\n\r\n"


@pytest.mark.parametrize("path", [b"/", b"/wait", b"/known"])
def test_a_body_of_one_byte_chunks_is_parsed_in_steps(path: bytes) -> None:
    """Sixty thousand such chunks held the loop for two seconds."""

    class Counted(Watched):
        counts: list[int] = []  # noqa: RUF012  (of this test)

    async def run() -> None:
        async with serving(rest_s=60, protocol=Counted) as clients:
            client = await clients.connect()
            assert await asked(client, chunked(path, 3000)) == b"HTTP/1.1 200 OK"
            assert await asked(client) == b"HTTP/1.1 200 OK"
        assert max(Counted.counts) <= connection.EVENTS_A_TURN
        assert len(Counted.counts) >= 3000 // connection.EVENTS_A_TURN

    asyncio.run(run())


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def parsed(pieces: list[bytes]) -> tuple[int, bytes, int]:
    """How many requests there are in the pieces, their bodies, and how many trailers."""
    parser, requests, body, trailers = _Parser(), 0, b"", 0
    for piece in pieces:
        parser.receive_data(piece)
        parser.left = 10**6
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                break
            requests += isinstance(event, h11.Request)
            if isinstance(event, h11.Data):
                body += event.data
            if isinstance(event, h11.EndOfMessage):
                trailers += len(event.headers.raw_items())
                parser.send(h11.Response(status_code=200, headers=[]))
                parser.send(h11.EndOfMessage())
                parser.start_next_cycle()
    return requests, body, trailers


CHUNKED = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%b\r\n5\r\nabcde\r\n0\r\n"
OF_LENGTH = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
SIZES = [1, 7, HEAD_BYTES_MAX, 10**6]


@pytest.mark.parametrize("size", SIZES)
def test_requests_are_the_same_however_their_bytes_are_cut(size: int) -> None:
    lines = 3000 * b"\n"
    data = CHUNKED % b"" + 200 * b"a: b\r\n" + b"\r\n"
    data += OF_LENGTH % len(lines) + lines + REQUEST + OF_LENGTH % 50_000 + 50_000 * b"x" + REQUEST
    data += b"GET / HTTP/1.1\r\nHost: x\r\nX: " + 16_000 * b"y" + b"\r\n\r\n"
    assert parsed(cut(data, size)) == (6, b"abcde" + lines + 50_000 * b"x", 200)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + HEAD_BYTES_MAX * b"y" + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + HEAD_LINES_MAX * b"a:\r\n" + b"\r\n",
        b"GET /?" + HEAD_BYTES_MAX * b"&" + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        CHUNKED % b"" + b"X: " + HEAD_BYTES_MAX * b"y" + b"\r\n\r\n",
        CHUNKED % b"" + 2 * HEAD_LINES_MAX * b"a:\r\n" + b"\r\n",
        CHUNKED % b"Content-Length: 9000\r\n" + 2 * HEAD_LINES_MAX * b"a:\r\n" + b"\r\n",
        OF_LENGTH % 3 + b"\n\n\n" + REQUEST[:-2] + HEAD_LINES_MAX * b"a:\r\n" + b"\r\n",
    ],
)
def test_a_long_head_is_refused_though_it_arrives_whole(data: bytes, size: int) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        parsed(cut(data, size))


@pytest.mark.parametrize("path", [b"/", b"/known"])
def test_requests_behind_each_other_have_a_turn_each(path: bytes) -> None:
    class Counted(Watched):
        counts: list[int] = []  # noqa: RUF012  (of this test)

    async def run() -> None:
        async with serving(rest_s=60, protocol=Counted) as clients:
            reader, writer = await clients.connect()
            writer.write(REQUEST.replace(b" / ", b" %b " % path) * 500)
            async with asyncio.timeout(WAIT_S):
                for _ in range(500):
                    await reader.readuntil(b"answer")
        assert max(Counted.counts) <= 3

    asyncio.run(run())


def test_a_user_does_not_wait_for_clients_that_have_not_logged_in() -> None:
    """By his connection, or by what he shows on a new one."""
    turns = Never(lambda data: "alice" if b"shows a password" in data else "")
    waiting = turns.waiting

    async def run() -> None:
        async with serving(rest_s=60, protocol=partial(HttpConnection, turns=turns)) as clients:
            known, new, other = [await clients.connect() for _ in range(3)]
            other[1].write(REQUEST)
            new[1].write(REQUEST.replace(b"Host", b"X: shows a password\r\nHost"))
            assert await asked(new, b"") == b"HTTP/1.1 200 OK"
            known[1].write(b"GET /known HTTP/1.1\r\nX: shows a password\r\nHost: localhost\r\n\r\n")
            assert await asked(known, b"") == b"HTTP/1.1 200 OK"
            assert await asked(known) == b"HTTP/1.1 200 OK"
            async with asyncio.timeout(WAIT_S):
                while not waiting:  # noqa: ASYNC110  (The loop tells nobody.)
                    await asyncio.sleep(0.01)
            assert len(waiting) == 1
            waiting[0].go_on()
            assert await asked(other, b"") == b"HTTP/1.1 200 OK"

    asyncio.run(run())


def test_a_connection_that_waits_for_its_turn_receives_nothing_more() -> None:
    turns = Never()
    waiting = turns.waiting

    async def run() -> None:
        async with serving(rest_s=60, protocol=partial(HttpConnection, turns=turns)) as clients:
            _, writer = await clients.connect()
            writer.write(chunked(b"/wait", 1_000_000))
            async with asyncio.timeout(WAIT_S):
                while not waiting:  # noqa: ASYNC110  (The loop tells nobody.)
                    await asyncio.sleep(0.01)
            [first] = waiting
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(first._parser._ahead) <= 256 * 1024
            writer.transport.abort()
            while clients.known:
                first.transport.abort()
                await asyncio.sleep(0.01)
            assert not first.go_on()
            assert first.standing.is_gone

    asyncio.run(run())
