"""HTTPS: TLS between a socket and an HTTP connection, with the engine of Kafka's listeners
(smq.security.tls), and bounds like theirs.

    socket ── ciphertext ─▶ TlsConnection ── plain bytes ─▶ HTTP
           ◀───────────────               ◀── TlsTransport ─

HTTP begins when the handshake is complete. Until then a connection has ten seconds and 64 KiB,
there are at most NEWCOMERS_MAX of them, of which the oldest of the largest network go first, and
the handshakes of a turn share eight milliseconds, in which networks take turns. (A shard has other
numbers: smq.app.shard.connections.newcomers.) A client that does not read is not read from: what
TLS itself answers is bounded too.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

from smq.front.slots import REQUESTS_MAX
from smq.security.addresses import network_of, written
from smq.security.fair_queue import FairQueue
from smq.security.tls import TlsEngine

HANDSHAKE_S = 10.0
HANDSHAKE_BYTES_MAX = 64 * 1024
HANDSHAKE_READ_BYTES = 16 * 1024  # At once: requests may stand right behind it.
HANDSHAKES_S = 0.008  # Of a turn.
NEWCOMERS_MAX = REQUESTS_MAX
READ_BYTES = 256 * 1024  # Plain bytes of a turn.


class Handshakes:
    """The handshakes of one front: who is new, and whose step is next.

    context   the context for the next connection: keys may change
    """

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        self.context = context
        self.received, self.plain = (memoryview(bytearray(READ_BYTES)) for _ in range(2))
        """Where a connection receives, and decrypts, what it hands on at once."""
        self._newcomers: dict[TlsConnection, str] = {}  # With their networks; the oldest first.
        self._waiting = FairQueue[TlsConnection]()
        self._is_due = False

    def begin(self, connection: "TlsConnection", network: str) -> None:
        """A client has connected. If there are too many, the oldest one of the network that has
        most makes room."""
        self._newcomers[connection] = network
        if len(self._newcomers) > NEWCOMERS_MAX:
            [(most, _)] = Counter(self._newcomers.values()).most_common(1)
            oldest = next(each for each, its in self._newcomers.items() if its == most)
            self.end(oldest)
            oldest.abort()

    def end(self, connection: "TlsConnection") -> None:
        """It is no newcomer any more."""
        self._newcomers.pop(connection, None)
        self._waiting.discard(connection)

    def want_step(self, connection: "TlsConnection") -> None:
        """Have a connection go on with its handshake, in this turn or a later one."""
        self._waiting.add(connection, self._newcomers[connection])
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        clock_s = asyncio.get_running_loop().time
        self._is_due, end_s = False, clock_s() + HANDSHAKES_S
        while self._waiting and clock_s() < end_s:
            self._waiting.pop().shake_hands()
        self._ask_for_turn()


class TlsConnection(asyncio.BufferedProtocol):
    """One connection. `make_inner` makes the protocol that gets its plain bytes."""

    def __init__(self, handshakes: Handshakes, make_inner: Callable[[], asyncio.Protocol]) -> None:
        self._handshakes, self._make_inner = handshakes, make_inner
        self.context = handshakes.context()
        self._engine = TlsEngine(self.context)
        self._inner: asyncio.Protocol | None = None
        self._received_bytes = 0
        self._waits = False  # For its step of the handshake.
        self._is_due = False  # It goes on with what it has before more is received.
        self._stops = 0  # Reasons not to read: the client does not, or HTTP does not want more.

    # --- the socket's side -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        self.transport = transport
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.call_later(HANDSHAKE_S, self.abort)
        peer = transport.get_extra_info("peername")
        self._handshakes.begin(self, network_of(written(peer[0])) if peer else "")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (as asyncio's)
        """Where to receive."""
        room = self._handshakes.received
        return room[:HANDSHAKE_READ_BYTES] if self._inner is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """Ciphertext has arrived."""
        self._engine.receive(self._handshakes.received[:nbytes])
        if self._inner is not None:
            self._read()
            return
        self._received_bytes += nbytes
        if self._received_bytes > HANDSHAKE_BYTES_MAX:
            self.abort()
        else:
            self._waits = True
            self._listen()
            self._handshakes.want_step(self)

    def shake_hands(self) -> None:
        """Go on with the handshake."""
        self._waits = False
        if self.transport.is_closing():
            return
        try:
            self._engine.shake_hands()
        except ssl.SSLError:
            self._flush()  # It says why.
            self.transport.close()
            return
        self._flush()
        if self._engine.is_established:
            self._end.cancel()
            self._handshakes.end(self)
            self._inner = self._make_inner()
            self._inner.connection_made(TlsTransport(self))
            self._read()
        self._listen()

    def _read(self) -> None:
        """Hand on what was received, a turn's share."""
        assert self._inner is not None
        if self._stops or self._is_due or self.transport.is_closing():
            return
        room = self._handshakes.plain
        try:
            count = self._engine.read_into(room)
        except ssl.SSLError:
            self._flush()
            self.transport.close()
            return
        self._flush()
        if count < 0:
            self.transport.close()
            return
        if not self._engine.is_drained:
            self._read_soon()
        if count:
            self._inner.data_received(bytes(room[:count]))

    def _read_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._read_on)
        self._listen()

    def _read_on(self) -> None:
        self._is_due = False
        self._read()
        self._listen()

    def _listen(self) -> None:
        """Receive from the socket, or leave it what comes: memory holds little."""
        if self._stops or self._is_due or self._waits:
            self.transport.pause_reading()
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Much waits for the client."""
        self.stop()
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        self.go_on()
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self._end.cancel()
        self._handshakes.end(self)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    # --- the side of HTTP ------------------------------------------------------------------------

    def stop(self) -> None:
        """Read nothing for now."""
        self._stops += 1
        self._listen()

    def go_on(self) -> None:
        """A reason to read nothing has gone."""
        self._stops -= 1
        if not self._stops and self._inner is not None:
            self._read_soon()
        else:
            self._listen()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send plain bytes."""
        with memoryview(data) as view:
            at = 0
            while at < len(view) and not self.transport.is_closing():
                at += self._engine.write(view[at:])
                self._flush()

    def _flush(self) -> None:
        while ciphertext := self._engine.take_sent():
            self.transport.write(ciphertext)

    def close(self) -> None:
        """Send what was written, then close."""
        if not self.transport.is_closing():
            self._engine.end()
            self._flush()
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()


class TlsTransport(asyncio.Transport):
    """What the inner protocol of a connection writes to."""

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        self._connection, self._is_paused = connection, False

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  (as asyncio's)
        """That of the socket; `sslcontext` says that it is one of TLS."""
        if name == "sslcontext":
            return self._connection.context
        return self._connection.transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send plain bytes."""
        self._connection.write(data)

    def pause_reading(self) -> None:
        """Hand on nothing more for now."""
        if not self._is_paused:
            self._is_paused = True
            self._connection.stop()

    def resume_reading(self) -> None:
        """Hand on what comes."""
        if self._is_paused:
            self._is_paused = False
            self._connection.go_on()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be once all is sent."""
        return self._connection.transport.is_closing()

    def close(self) -> None:
        """Send what was written, then close."""
        self._connection.close()

    def abort(self) -> None:
        """Close at once."""
        self._connection.abort()

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken."""
        return self._connection.transport.get_write_buffer_size()
