"""A blocking connection to one broker: it sends questions, and reads answers in the same order.

The first question asks for the versions that the broker knows. All others use the newest version
that both sides know. Where the broker asks who we are, the next ones log in (KIP-152). `start` and
`finish` are the halves of `ask`: to ask several brokers at the same time, start all before
finishing the first.

A login may end after some time (KIP-368). A connection whose login soon ends counts as closed once
nothing is owed: it is opened anew.
"""

import secrets
import ssl
from collections import deque
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import AuthenticationFailed, BrokerUnavailable, ClosedUnanswered
from smq.client.kafka.questions import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Question,
)
from smq.client.secure.logins import LoginFailed, SaslClient, TokenLogin, login_by
from smq.client.secure.opening import certificate_refused, connected, in_tls, is_path
from smq.client.secure.security import PLAINTEXT, Security
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.wire.api import Request, Response
from smq.wire.codec import Writer
from smq.wire.generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from smq.wire.headers import RequestHeader, read_response_header, write_request_header

if TYPE_CHECKING:
    import socket

    from smq.client.secure.tls_stream import TlsStream

CLIENT_ID = "smq"
CONNECT_SECONDS_MAX = 5.0
ATTEMPT_SECONDS_MIN = 0.5  # A broker gets this much time to answer, even past a deadline.
ANSWER_SECONDS_MAX = (
    60.0  # Above the longest that a broker holds back an answer: to a fetch or a join.
)
# A slower answer is taken for one without end: 8 MiB of records take eight minutes.
BYTES_A_SECOND_MIN = 16 * 1024

Stream: TypeAlias = "socket.socket | TlsStream"
NONCE_BYTES = 24
LOGIN_USED_SHARE = 0.9  # Of how long a login lasts; then the connection is opened anew.

_SIZE = Struct(">i")
_BEFORE_LOGIN = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
_HAS_CLOSED = "it has closed the connection"


class KafkaConnection:
    """One socket. Raises BrokerUnavailable, and is closed, if the broker does not answer in time.

    `left_s`: until the deadline of who asks. A token takes of it first, which comes from elsewhere.

    Invariant: the broker owes exactly the answers that `_owed` names, in that order.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (where, who, and for how long)
        self,
        host: str,
        port: int,
        seconds_max: float = ANSWER_SECONDS_MAX,
        clock: Clock = SYSTEM_CLOCK,
        security: Security = PLAINTEXT,
        left_s: float = inf,
    ) -> None:
        self.address = written(host, port)
        self._clock = clock
        self._is_known = False  # Whether it has answered what it answers only to whom it takes.
        self._has_login = bool(security.mechanism)
        self._login_ends_s = inf
        self._owed: deque[tuple[Question[Any, Any], int, int]] = deque()
        self._last_correlation_id = 0
        self._last_question: Question[Any, Any] | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        # Before the broker waits: it gives who connects some seconds.
        token, deadline_s = "", clock.monotonic_s() + left_s
        if security.tokens is not None:
            token = security.tokens.token(clock, max(left_s, ATTEMPT_SECONDS_MIN))
            seconds_max = min(seconds_max, deadline_s - clock.monotonic_s())
            seconds_max = max(seconds_max, ATTEMPT_SECONDS_MIN)
        try:
            connect_seconds = min(CONNECT_SECONDS_MAX, seconds_max)
            self.stream: Stream = connected(host, port, connect_seconds, security.socket_owner)
            if security.tls is not None:
                self.stream = in_tls(self.stream, host, security.tls, connect_seconds, clock)
        except OSError as error:
            raise self._unavailable(error) from error
        self.wait_at_most(seconds_max)
        try:
            self._learn_versions()
            if security.mechanism:
                self._log_in(security, token)
        except BaseException:
            self.close()
            raise

    @property
    def is_closed(self) -> bool:
        if not self._owed and self._clock.monotonic_s() >= self._login_ends_s:
            self.close()
        return self.stream.fileno() < 0

    def fileno(self) -> int:
        """Readable when an answer begins to arrive, or the connection ends."""
        return self.stream.fileno()

    def wait_at_most(self, seconds: float) -> None:
        """Wait at most this long for each part of an answer, from now on; for all of them as long
        again, and what BYTES_A_SECOND_MIN takes."""
        self._seconds_max = seconds
        self.stream.settimeout(seconds)

    def close(self) -> None:
        """Close the socket. Answers still owed are lost."""
        self.stream.close()

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
        self._is_known = self._is_known or question not in _BEFORE_LOGIN
        return question.api.read_response(data, at, version)

    def _learn_versions(self) -> None:
        # Every broker knows version 0, and it says all that we need.
        self._send(API_VERSIONS, ApiVersionsRequest(), 0)
        response: ApiVersionsResponse = self.finish()
        self._versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def _log_in(self, security: Security, of_oauth: str) -> None:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        login: SaslClient = TokenLogin(of_oauth)
        check = "the token: its issuer, audience and user, and when it ends"
        if security.tokens is None:
            login = login_by(security.mechanism, security.user, security.password, nonce)
            check = "the user's name and password"
        shaken = self.ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=security.mechanism))
        if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            known = ", ".join(shaken.mechanisms) or "none"
            raise self._refused(f"it knows {known}, and not {security.mechanism}")
        if shaken.error_code != ErrorCode.NONE:
            raise self._refused("this listener takes no login; see security.protocol")
        token: bytes | None = login.first()
        while token is not None:
            said = self.ask(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
            if said.error_code != ErrorCode.NONE:
                why = (said.error_message or "it does not say why").rstrip(".")
                raise self._refused(f"{why}; check {check}")
            token = self._next_of(login, said.auth_bytes)
        if said.session_lifetime_ms > 0:
            lasts_s = LOGIN_USED_SHARE * said.session_lifetime_ms / 1000
            self._login_ends_s = self._clock.monotonic_s() + lasts_s

    def _next_of(self, login: SaslClient, said: bytes) -> bytes | None:
        try:
            return login.next(said)
        except LoginFailed as reason:
            raise self._refused(str(reason)) from reason

    def _refused(self, why: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"no login at {self.address}: {why}")

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
        self._last_question = question
        writer = Writer()
        header = RequestHeader(question.api.key, version, self._last_correlation_id, CLIENT_ID)
        write_request_header(header, writer)
        question.api.write_request(request, version, writer)
        body = writer.to_bytes()
        try:
            self.stream.sendall(_SIZE.pack(len(body)) + body)
        except OSError as error:
            raise self._unavailable(self._told_before(error)) from error
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
                count = self.stream.recv_into(data[received:])
            except OSError as error:
                raise self._unavailable(error) from error
            if count == 0:
                raise self._unavailable(_HAS_CLOSED)
            if self._clock.monotonic_s() > until:
                raise self._unavailable("its answer comes too slowly")
            received += count
        return data

    def _told_before(self, error: OSError) -> OSError:
        """Why the broker has closed, if it has said so; else how we found that."""
        if isinstance(error, ConnectionError | ssl.SSLError):
            try:
                self.stream.recv_into(memoryview(bytearray(1)))
            except OSError as told:
                return told
        return error

    def _unavailable(self, reason: OSError | str) -> BrokerError:
        if not hasattr(self, "stream"):
            return _unavailable(self.address, reason)
        self.close()
        found = _unavailable(self.address, reason)
        is_closed = reason == _HAS_CLOSED or isinstance(reason, ConnectionError | ssl.SSLError)
        if self._is_known or not is_closed:
            return found
        if (refused := certificate_refused(self.address, reason)) is not None:
            return refused
        # What a broker has another one answer is closed when that one ends.
        is_own = self._last_question is METADATA
        wants_login = bool(self._versions) and not self._has_login and is_own
        return ClosedUnanswered(found.message or "", wants_login=wants_login)


def opened(host: str, port: int, clock: Clock, security: Security, left_s: float = inf) -> Stream:
    """A socket to a broker, logged in, for one who speaks for himself; `left_s` as above.

    Raises BrokerUnavailable, AuthenticationFailed.
    """
    if security.is_plain:
        try:
            return connected(host, port, CONNECT_SECONDS_MAX, security.socket_owner)
        except OSError as error:
            raise _unavailable(written(host, port), error) from error
    return KafkaConnection(host, port, CONNECT_SECONDS_MAX, clock, security, left_s).stream


def written(host: str, port: int) -> str:
    """An address as texts have it."""
    return host if is_path(host) else f"{host}:{port}"


def _unavailable(address: str, reason: OSError | str) -> BrokerUnavailable:
    words = (reason.strerror if isinstance(reason, OSError) else None) or reason
    return BrokerUnavailable(f"no broker answers at {address}: {words}")
