"""An HTTP/1.1 connection that is closed when idle for too long, or to make room for another, and
whose bytes are parsed when it has its turn.

uvicorn has no timeout for the first request, for the rest of a request, and for a client that reads
its answer slowly or not at all. It parses all that it has received at once: a body of chunks of one
byte, or a thousand requests behind each other, would hold the loop for a second.
"""

import asyncio
import json
import socket
from collections import Counter, defaultdict, deque
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import Any
from weakref import WeakSet

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from smq.front.slots import REQUESTS_MAX, WAITING_MAX
from smq.front.turns import PeerStanding, Turns
from smq.security.addresses import network_of, written

REST_S = 15  # Without a complete request head: before the first request, or between two.
DEAF_MS = 60_000  # Without reading a byte of the answer.
SLOW_S = 60.0  # Until what waits for the client (64 KiB, asyncio's high-water mark) has gone.
CONNECTIONS_MAX = REQUESTS_MAX + WAITING_MAX + 256  # So some connections are always idle.
# Of one connection; each takes some thirty microseconds.
EVENTS_A_TURN, EVENTS_OF_NEWCOMER = 128, 16
# Of a request, and of what follows a body of chunks: h11 takes some four microseconds for a line.
HEAD_BYTES_MAX, HEAD_LINES_MAX = 16 * 1024, 256
_MAKING_ROOM: WeakSet[ServerState] = WeakSet()  # Servers whose idle connections are to go.


class _Parser(h11.Connection):
    """h11's, which parses `left` events of what it has received, and then `is_cut`.

    h11 refuses long heads only while they are incomplete: what has arrived whole may be long. So it
    gets no more at a time than one head may have.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)
        self.left = 0
        self.is_cut = False
        self._ahead = bytearray()  # Received, and not h11's yet.
        self._body_left = 0  # Of a body whose length is known.

    def receive_data(self, data: bytes) -> None:
        """See h11."""
        self._ahead += data

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """See h11."""
        self.is_cut = not self.left and bool(self._receive_buffer or self._ahead)
        if self.is_cut:
            return h11.NEED_DATA
        self.left = max(0, self.left - 1)
        event = super().next_event()
        while event is h11.NEED_DATA and self._ahead:
            super().receive_data(self._take_ahead())
            event = super().next_event()
        if isinstance(event, h11.Request):
            self._body_left = _length_of_body(event)
        elif isinstance(event, h11.Data):
            self._body_left = max(0, self._body_left - len(event.data))
        return event

    def _take_ahead(self) -> bytes:
        """The bytes that h11 gets next: such of a body, or with them it has one more byte and line
        than a head may have, at most."""
        if self._body_left:
            taken = bytes(self._ahead[: self._body_left])
            del self._ahead[: len(taken)]
            return taken
        incomplete = bytes(self._receive_buffer)  # Not more: h11 refuses it.
        lines_left = HEAD_LINES_MAX + 1 - incomplete.count(b"\n")
        if lines_left <= 0:
            raise h11.RemoteProtocolError("the head of the request has too many lines")
        taken = bytes(self._ahead[: HEAD_BYTES_MAX + 1 - len(incomplete)])
        if taken.count(b"\n") > lines_left:
            rest = taken.split(b"\n", lines_left)[-1]
            taken = taken[: -len(rest)]
        del self._ahead[: len(taken)]
        return taken


def _length_of_body(request: h11.Request) -> int:
    """Its bytes; 0: none, or chunks, which end with lines like a head's."""
    found = dict(request.headers)
    return 0 if b"transfer-encoding" in found else int(found.get(b"content-length", 0))


class _Reading(FlowControl):
    """uvicorn's, which receives nothing while the connection waits for its turn either."""

    _waits = False

    def pause_reading(self) -> None:
        """uvicorn wants nothing for now."""
        self.read_paused = True
        self._apply()

    def resume_reading(self) -> None:
        """uvicorn wants more."""
        self.read_paused = False
        self._apply()

    def wait(self, *, waits: bool) -> None:
        """The connection waits for its turn, or has had it."""
        self._waits = waits
        self._apply()

    def _apply(self) -> None:
        if self.read_paused or self._waits:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class HttpConnection(H11Protocol):
    """uvicorn's protocol with a limited idle time. Idle connections make room for new ones."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  (as uvicorn's)
        turns: Turns | None = None,
        **named: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **named)
        self.conn = self._parser = _Parser()
        self.standing = PeerStanding()
        self.app_state = {**self.app_state, **self.standing.in_state()}
        self._turns = Turns() if turns is None else turns
        self._waits = False  # For its turn.
        self._user = ""  # Whose request comes in, if that is known.
        self.rests_since_s = 0.0
        self._rest_end: asyncio.TimerHandle | None = None
        self._slow_end: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The client's address; of IPv6 its network, of which one host has any number."""
        return network_of(self.client[0]) if self.client else ""

    @property
    def rests(self) -> bool:
        """Whether no answer is under way."""
        return self.conn.our_state not in {h11.SEND_RESPONSE, h11.SEND_BODY}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.flow = self._reading = _Reading(transport)
        peer = transport.get_extra_info("peername")  # A socket that was reset knows it no more.
        self.client = (written(peer[0]), peer[1]) if peer else None
        self.standing.cut = transport.abort
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAF_MS)
        self._rest()
        if len(self.connections) > CONNECTIONS_MAX and self.server_state not in _MAKING_ROOM:
            _MAKING_ROOM.add(self.server_state)
            self.loop.call_soon(self._make_room)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived, perhaps the end of a request's head."""
        if not self._waits:
            self._parser.left = 0
            if self.conn.their_state is not h11.SEND_BODY:
                self._user = self._turns.user_of(data)
        super().data_received(data)

    def go_on(self) -> bool:
        """Its turn has come."""
        self._waits = False
        if self.transport.is_closing():
            return False
        self.standing.has_asked = True
        self._parser.left = EVENTS_A_TURN if self.standing.is_known else EVENTS_OF_NEWCOMER
        self.handle_events()
        return True

    def handle_events(self) -> None:
        """Go on with what has arrived; what is too much for now waits."""
        super().handle_events()
        if self._parser.is_cut and not self._waits and not self.transport.is_closing():
            self._waits = True
            standing, user = self.standing, self._user or self.standing.user
            is_known = standing.is_known or bool(user)
            whose = user or self.address
            self._turns.want(self, whose, again=standing.has_asked, is_known=is_known)
        self._reading.wait(waits=self._waits)
        if not self.rests:
            self._stop_timer()
        elif self.conn.their_state is h11.SEND_BODY:  # It may finish sending the body.
            self._set_timer()

    def on_response_complete(self) -> None:
        """The answer is complete; uvicorn starts the next request, if that has arrived."""
        self._parser.left = 0
        super().on_response_complete()
        if self.rests:
            self._rest()

    def pause_writing(self) -> None:
        """Much of the answer waits for the client."""
        super().pause_writing()
        self._slow_end = self.loop.call_later(SLOW_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        self._stop_slow_end()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self.standing.is_gone, self.standing.cut = True, None
        self._stop_timer()
        self._stop_slow_end()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """The client sent no valid HTTP: answer 400."""
        body = json.dumps({"error": msg}).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        if self.conn.our_state in {
            h11.IDLE,
            h11.SEND_RESPONSE,
        }:  # Else an answer has begun.
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _rest(self) -> None:
        self.rests_since_s = self.loop.time()
        self._set_timer()

    def _set_timer(self) -> None:
        self._stop_timer()
        wait_s = self.config.timeout_keep_alive
        # Sends what is already written, then closes.
        self._rest_end = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def _stop_timer(self) -> None:
        if self._rest_end is not None:
            self._rest_end.cancel()
            self._rest_end = None

    def _stop_slow_end(self) -> None:
        if self._slow_end is not None:
            self._slow_end.cancel()
            self._slow_end = None

    def _make_room(self) -> None:
        """Close idle connections of the addresses with most connections, those idle longest.

        All that have come in a turn make room together: each is looked at once for all of them.
        """
        _MAKING_ROOM.discard(self.server_state)
        staying = [
            each
            for each in self.connections
            if isinstance(each, HttpConnection) and not each.transport.is_closing()
        ]
        counts = Counter(each.address for each in staying)
        resting: defaultdict[str, deque[HttpConnection]] = defaultdict(deque)
        for each in sorted((each for each in staying if each.rests), key=_rests_since_s):
            resting[each.address].append(each)
        queue = [(-counts[name], each[0].rests_since_s, name) for name, each in resting.items()]
        heapify(queue)
        for _ in range(len(staying) - CONNECTIONS_MAX):
            if not queue:
                return
            count, _, name = queue[0]
            resting[name].popleft().timeout_keep_alive_handler()
            if resting[name]:
                heapreplace(queue, (count + 1, resting[name][0].rests_since_s, name))
            else:
                heappop(queue)


_rests_since_s = attrgetter("rests_since_s")
