"""A blocking connection to one broker: it sends questions, and reads answers in the same order.

The first question asks for the versions that the broker knows. All others use the newest version
that both sides know. `start` and `finish` are the halves of `ask`: to ask several brokers at the
same time, start all before finishing the first.
"""

import socket
from collections import deque
from struct import Struct
from typing import Any

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import BrokerUnavailable
from smq.client.kafka.questions import API_VERSIONS, Question
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.wire.api import Request, Response
from smq.wire.codec import Writer
from smq.wire.generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from smq.wire.headers import RequestHeader, read_response_header, write_request_header

CLIENT_ID = "smq"
PORT_MAX = 65_535
CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = (
    60.0  # Above the longest that a broker holds back an answer: to a fetch or a join.
)
# A slower answer is taken for one without end: 8 MiB of records take eight minutes.
BYTES_A_SECOND_MIN = 16 * 1024

_SIZE = Struct(">i")


def connected(host: str, port: int, seconds_max: float) -> socket.socket:
    """A socket to a broker. Raises OSError, also if what a broker named is no address."""
    if not 0 < port <= PORT_MAX:  # The resolver would take some of its bits.
        raise OSError("that is no address")
    try:
        return socket.create_connection((host, port), seconds_max)
    except ValueError as error:  # No name of a host can be so.
        raise OSError("that is no address") from error


class KafkaConnection:
    """One socket. Raises BrokerUnavailable, and is closed, if the broker does not answer in time.

    Invariant: the broker owes exactly the answers that `_owed` names, in that order.
    """

    def __init__(
        self,
        host: str,
        port: int,
        seconds_max: float = ANSWER_SECONDS_MAX,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.address = f"{host}:{port}"
        self._clock = clock
        self._owed: deque[tuple[Question[Any, Any], int, int]] = deque()
        self._last_correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            connect_seconds = min(CONNECT_SECONDS_MAX, seconds_max)
            self._socket = connected(host, port, connect_seconds)
        except OSError as error:
            raise self._unavailable(error) from error
        self.wait_at_most(seconds_max)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._learn_versions()
        except BaseException:
            self.close()
            raise

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def fileno(self) -> int:
        """Readable when an answer begins to arrive, or the connection ends."""
        return self._socket.fileno()

    def wait_at_most(self, seconds: float) -> None:
        """Wait at most this long for each part of an answer, from now on; for all of them as long
        again, and what BYTES_A_SECOND_MIN takes."""
        self._seconds_max = seconds
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close the socket. Answers still owed are lost."""
        self._socket.close()

    def ask(self, question: Question[Request, Response], request: Request) -> Response:
        """Send a question, and return its answer."""
        self.start(question, request)
        response: Response = self.finish()
        return response

    def start(self, question: Question[Request, Any], request: Request) -> None:
        """Send a question."""
        self._send(question, request, self._version_of(question))

    def finish(self) -> Any:  # noqa: ANN401  (the type is the question's)
        """The answer to the oldest question that is not answered yet."""
        question, version, correlation_id = self._owed.popleft()
        try:
            data = self._receive(question.answer_bytes_max)
        except BaseException:  # The stream may be in the middle of an answer.
            self.close()
            raise
        answered, at = read_response_header(data, 0, question.api.key, version)
        if answered != correlation_id:
            raise PeerError(f"{self.address} answers {answered} where {correlation_id} was asked")
        return question.api.read_response(data, at, version)

    def _learn_versions(self) -> None:
        # Every broker knows version 0, and it says all that we need.
        self._send(API_VERSIONS, ApiVersionsRequest(), 0)
        response: ApiVersionsResponse = self.finish()
        self._versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def _version_of(self, question: Question[Any, Any]) -> int:
        first, last = self._versions.get(question.api.key, (0, -1))
        version = min(last, question.version_max)
        if version < max(first, question.api.first_version):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} does not know a version of {question.api.name} that we know",
            )
        return version

    def _send(self, question: Question[Request, Any], request: Request, version: int) -> None:
        self._last_correlation_id += 1
        writer = Writer()
        header = RequestHeader(question.api.key, version, self._last_correlation_id, CLIENT_ID)
        write_request_header(header, writer)
        question.api.write_request(request, version, writer)
        body = writer.to_bytes()
        try:
            self._socket.sendall(_SIZE.pack(len(body)) + body)
        except OSError as error:
            raise self._unavailable(error) from error
        except BaseException:  # Half a question may have been sent.
            self.close()
            raise
        self._owed.append((question, version, self._last_correlation_id))

    def _receive(self, bytes_max: int) -> memoryview:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        if not 0 <= size <= bytes_max:
            raise PeerError(f"{self.address} announces an answer of {size} bytes")
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        received = 0
        until = self._clock.monotonic_s() + self._seconds_max + size / BYTES_A_SECOND_MIN
        while received < size:
            try:
                count = self._socket.recv_into(data[received:])
            except OSError as error:
                raise self._unavailable(error) from error
            if count == 0:
                raise self._unavailable("it has closed the connection")
            if self._clock.monotonic_s() > until:
                raise self._unavailable("its answer comes too slowly")
            received += count
        return data

    def _unavailable(self, reason: OSError | str) -> BrokerUnavailable:
        if hasattr(self, "_socket"):
            self.close()
        words = (reason.strerror if isinstance(reason, OSError) else None) or reason
        return BrokerUnavailable(f"no broker answers at {self.address}: {words}")
