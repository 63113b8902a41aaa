"""An HTTP/1.1 connection that is closed when idle for too long, or to make room for another.

uvicorn has no timeout for the first request, for the rest of a request, and for a client that reads
its answer slowly or not at all.
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
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from smq.front.slots import REQUESTS_MAX
from smq.security.addresses import network_of, written

REST_S = 15  # Without a complete request head: before the first request, or between two.
DEAF_MS = 60_000  # Without reading a byte of the answer.
SLOW_S = 60.0  # Until what waits for the client (64 KiB, asyncio's high-water mark) has gone.
CONNECTIONS_MAX = 2 * REQUESTS_MAX  # So some connections are always idle.
_MAKING_ROOM: WeakSet[ServerState] = WeakSet()  # Servers whose idle connections are to go.


class HttpConnection(H11Protocol):
    """uvicorn's protocol with a limited idle time. Idle connections make room for new ones."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401  (as uvicorn's)
        super().__init__(*args, **named)
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
        peer = transport.get_extra_info("peername")  # A socket that was reset knows it no more.
        self.client = (written(peer[0]), peer[1]) if peer else None
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAF_MS)
        self._rest()
        if len(self.connections) > CONNECTIONS_MAX and self.server_state not in _MAKING_ROOM:
            _MAKING_ROOM.add(self.server_state)
            self.loop.call_soon(self._make_room)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived, perhaps the end of a request's head."""
        super().data_received(data)
        if not self.rests:
            self._stop_timer()
        elif self.conn.their_state is h11.SEND_BODY:  # It may finish sending the body.
            self._set_timer()

    def on_response_complete(self) -> None:
        """The answer is complete; uvicorn starts the next request, if that has arrived."""
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
