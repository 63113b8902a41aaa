"""A channel over Kafka's wire: one non-blocking socket with pipelined requests."""

from collections import deque
from math import inf
from struct import Struct

import numpy as np

from shm.kernels.record.records_encode import One
from shm.kernels.session.one_record import put_one
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import ChannelGone
from smq.client.kafka.connection import Stream, opened
from smq.client.producing.channel.channel import REQUEST_BYTES_MAX
from smq.client.producing.encode.batch_writer import Stamp
from smq.client.secure.security import PLAINTEXT, Security
from smq.client.wait import READABLE, WRITABLE

# The most that a slow broker may let pile up here. The producer's buffer bounds the rest.
UNSENT_BYTES_MAX = 4 * 1024 * 1024
RECEIVE_BYTES = 64 * 1024  # A thousand answers.
ANSWER_BYTES_MAX = 1024 * 1024  # About one partition each, with an error's text at most.

_SIZE = Struct(">i")


class WireChannel:
    """See Channel. Raises BrokerUnavailable, AuthenticationFailed if it cannot connect; `left_s`:
    until the deadline of who opens it."""

    is_quiet = False
    request_bytes_max = REQUEST_BYTES_MAX

    def __init__(
        self,
        host: str,
        port: int,
        clock: Clock = SYSTEM_CLOCK,
        security: Security = PLAINTEXT,
        left_s: float = inf,
    ) -> None:
        self._socket: Stream = opened(host, port, clock, security, left_s)
        self._socket.setblocking(False)  # noqa: FBT003  (the socket's own signature)
        self._room = np.zeros(0, np.uint8)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._received = bytearray()

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        """Room for a request, unless the broker has not taken too much of earlier ones."""
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            return None
        if len(self._room) < size_bytes:
            self._room = np.zeros(size_bytes, np.uint8)
        return self._room[:size_bytes]

    def send_one(
        self, size_bytes: int, head: np.ndarray, correlation_id: int, one: One, stamp: Stamp
    ) -> bool:
        """Write it into the room, and send it."""
        if (out := self.reserve(size_bytes)) is None:
            return False
        self.commit(int(put_one(out, head, correlation_id, *one, *stamp)))
        return True

    def commit(self, used_bytes: int) -> None:
        """Send as much as the socket takes; the rest is kept."""
        assert used_bytes <= len(self._room), "the next request would be the rest of this one"
        request = self._room[:used_bytes].data
        sent = 0 if self._unsent else self._send(request)
        if sent < used_bytes:
            self._unsent.append(memoryview(bytes(request[sent:])))
            self._unsent_bytes += used_bytes - sent

    def push(self) -> None:
        """Send the kept bytes, as far as the socket takes them."""
        while self._unsent:
            piece = self._unsent[0]
            sent = self._send(piece)
            self._unsent_bytes -= sent
            if sent < len(piece):
                self._unsent[0] = piece[sent:]
                return
            self._unsent.popleft()

    def _send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelGone(str(error)) from error

    def answers(self) -> list[bytes]:
        """The complete answers."""
        self._receive()
        answers, at = [], 0
        while len(self._received) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received, at)
            if not 0 <= size <= ANSWER_BYTES_MAX:
                raise ChannelGone(f"the broker announces an answer of {size} bytes")
            end = at + _SIZE.size + size
            if end > len(self._received):
                break
            answers.append(bytes(self._received[at + _SIZE.size : end]))
            at = end
        del self._received[:at]
        return answers

    def _receive(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelGone(str(error)) from error
        if not data:
            raise ChannelGone("the broker has closed the connection")
        self._received += data

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def arm(self) -> bool:
        """Nothing to do: the socket itself wakes the thread that polls."""
        return True

    def disarm(self) -> bool:
        """Nothing to do, as above. There may be answers: only the socket knows."""
        return True

    def events(self) -> int:
        """What to poll for."""
        return READABLE | WRITABLE if self._unsent else READABLE

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def forget(self) -> None:
        """Close this process's copy; the broker does not notice."""
        self._socket.close()
