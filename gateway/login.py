"""What a connection says to log in by SASL (KIP-43, KIP-152, KIP-368). No IO, no clock.

                      ApiVersions
        BEGINNING ───────────────────▶ VERSIONED
          │    ▲ of a version                │ SaslHandshake
          │    └ that we lack                ▼
          └──────────────────────────▶ AUTHENTICATING ─▶ DONE
                  SaslHandshake         SaslAuthenticate, or tokens alone after SaslHandshake 0

        RENEWING ─ SaslHandshake ─▶ AUTHENTICATING ─▶ DONE     a connection that has logged in

Whatever else comes closes the connection, as in Kafka: a second ApiVersions, another request first,
another mechanism or user when a login is renewed. ApiVersions and SaslHandshake while tokens are
expected are ILLEGAL_SASL_STATE. What fails is answered, if at all, after a delay, for which the
caller cares. A login whose user gets another password meanwhile is closed without an answer: its
client may have the right one, the old or the new, and tries again.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from struct import Struct
from typing import NamedTuple

from gateway.apis.table import API_BY_KEY
from gateway.dispatch import dispatch, encode
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.model.now import Now
from smq.security.audit import cut
from smq.security.caller import Caller
from smq.security.principals import USER, Principal
from smq.security.sasl import Lasting, SaslServer, Work, invalid_credentials, refused
from smq.shard.shard import Shard
from smq.wire.generated import apis
from smq.wire.generated.api_versions import ApiVersionsResponse
from smq.wire.generated.sasl_authenticate import SaslAuthenticateResponse
from smq.wire.generated.sasl_handshake import SaslHandshakeResponse
from smq.wire.headers import RequestHeader, read_request_header

_SIZE = Struct(">i")


class Stage(Enum):
    """How far a login is."""

    BEGINNING, VERSIONED, AUTHENTICATING, RENEWING, DONE = range(5)


S = Stage
VERSIONS, HANDSHAKE, AUTHENTICATE, TOKEN = (
    apis.API_VERSIONS.name,
    apis.SASL_HANDSHAKE.name,
    apis.SASL_AUTHENTICATE.name,
    "token",
)
TAKES: dict[Stage, dict[str, Stage]] = {
    S.BEGINNING: {VERSIONS: S.VERSIONED, HANDSHAKE: S.AUTHENTICATING},
    S.VERSIONED: {HANDSHAKE: S.AUTHENTICATING},
    S.RENEWING: {HANDSHAKE: S.AUTHENTICATING},
    S.AUTHENTICATING: {AUTHENTICATE: S.DONE, TOKEN: S.DONE},  # With the last token only.
    S.DONE: {},
}
assert TAKES.keys() == set(Stage)


class LoginSession(NamedTuple):
    """A login: who, by which mechanism, for how long (0: for ever), and checked with what."""

    principal: Principal
    mechanism: str
    lifetime_ms: int
    checked: Lasting


class Reply(NamedTuple):
    """The answer, its size first (b"": there is none); and whether the login has failed, so that
    the connection is closed after it."""

    answer: bytes
    has_failed: bool = False


class Checking(NamedTuple):
    """Work for another thread; `then` makes the reply of what it has returned or raised."""

    work: Work
    then: Callable[[bytes | BrokerError], Reply]


class LoginRules(NamedTuple):
    """How clients log in at a listener."""

    mechanisms: Sequence[str]
    begin: Callable[[str], SaslServer]
    """Makes the server of a mechanism."""
    lifetime_ms: Callable[[str], int]
    """How long a login by this mechanism lasts; 0: for ever."""


class Login:
    """One login of a connection; `former` is the one that it renews.

    session  once it is complete
    """

    def __init__(
        self, rules: LoginRules, shard: Shard, caller: Caller, former: LoginSession | None = None
    ) -> None:
        self._rules, self._shard, self._caller, self._former = rules, shard, caller, former
        self._stage = Stage.BEGINNING if former is None else Stage.RENEWING
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._is_raw = False  # Tokens come without a header.
        self.session: LoginSession | None = None

    @property
    def mechanism(self) -> str:
        """The mechanism that the client has chosen; "": none yet."""
        return self._mechanism

    def take(self, frame: memoryview, now: Now) -> Reply | Checking:
        """Take what the client has sent, without its size. Raises PeerError: close."""
        if self._is_raw:
            return self._take_token(None, bytes(frame))
        header, at = read_request_header(frame, 0)
        api = API_BY_KEY.get(header.api_key)
        if api is not None and api.name in TAKES[self._stage] and api.name == VERSIONS:
            return self._tell_versions(frame, now)
        if api is None or header.api_version not in api.versions:
            raise PeerError(f"no version {header.api_version} of API {header.api_key}")
        if api.name not in TAKES[self._stage]:
            return self._refuse(header)
        request = api.read_request(frame, at, header.api_version)
        if api.name == HANDSHAKE:
            return self._shake_hands(header, request.mechanism)
        return self._take_token(header, request.auth_bytes)

    def _refuse(self, header: RequestHeader) -> Reply:
        """The answer to what is not expected now. Raises PeerError."""
        make = _REFUSED_LATER.get(header.api_key)
        if make is None or self._stage is not Stage.AUTHENTICATING:
            raise PeerError(f"a request of API {header.api_key} before the login")
        return Reply(_encoded(header, make()), has_failed=True)

    def _tell_versions(self, frame: memoryview, now: Now) -> Reply:
        _, header, response = dispatch(frame, self._shard, now, self._caller)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == ErrorCode.NONE:
            self._stage = TAKES[self._stage][VERSIONS]
        return Reply(_encoded(header, response))

    def _shake_hands(self, header: RequestHeader, mechanism: str) -> Reply:
        mechanisms = self._rules.mechanisms
        if mechanism not in mechanisms:
            if self._former is not None:
                raise PeerError("a login is renewed by a mechanism that there is not")
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            response = SaslHandshakeResponse(error_code=error, mechanisms=mechanisms)
            return Reply(_encoded(header, response), has_failed=True)
        self._stage = TAKES[self._stage][HANDSHAKE]
        self._is_raw = header.api_version == 0
        self._mechanism, self._server = mechanism, self._rules.begin(mechanism)
        return Reply(_encoded(header, SaslHandshakeResponse(mechanisms=mechanisms)))

    def _take_token(self, header: RequestHeader | None, token: bytes) -> Reply | Checking:
        assert self._server is not None, "there has been a handshake"
        if self._former is not None and self._former.mechanism != self._mechanism:
            raise PeerError("a login is renewed by another mechanism")

        def then(answer: bytes | BrokerError) -> Reply:
            return self._answer_token(header, answer)

        try:
            answer = self._server.respond(token)
        except BrokerError as failure:
            return then(failure)
        return then(answer) if isinstance(answer, bytes) else Checking(answer, then)

    def _answer_token(self, header: RequestHeader | None, answer: bytes | BrokerError) -> Reply:
        assert self._server is not None
        if _has_changed(self._server):
            return Reply(b"", has_failed=True)
        user, checked = self._server.user, self._server.checked
        if user is not None and isinstance(answer, bytes):
            assert checked is not None, "it has logged in"
            answer = self._completed(Principal(USER, user), checked) or answer
        if isinstance(answer, BrokerError):
            return Reply(b"" if header is None else self._failed(header, answer), has_failed=True)
        if header is None:
            return Reply(_SIZE.pack(len(answer)) + answer)
        lifetime_ms = self.session.lifetime_ms if self.session is not None else 0
        response = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        return Reply(_encoded(header, response))

    def _completed(self, principal: Principal, checked: Lasting) -> BrokerError | None:
        """End the login, unless it renews another principal's."""
        former = self._former
        if former is not None and former.principal != principal:
            return refused(
                "Cannot change principals during re-authentication from "
                f"{former.principal.kind}.{cut(former.principal.name)}: {principal.kind}."
                f"{cut(principal.name)}"
            )
        assert self._server is not None
        lifetime_ms = self._server.lifetime_ms(self._rules.lifetime_ms(self._mechanism))
        self.session = LoginSession(principal, self._mechanism, lifetime_ms, checked)
        self._stage, self._is_raw = Stage.DONE, False
        return None

    def _failed(self, header: RequestHeader, failure: BrokerError) -> bytes:
        words = failure.message or invalid_credentials(
            self._mechanism, renews=self._former is not None
        )
        response = SaslAuthenticateResponse(error_code=failure.code, error_message=words)
        return _encoded(header, response)


def _has_changed(server: SaslServer) -> bool:
    """Whether the user has another password by now than the exchange is checked with."""
    return server.checked is not None and not server.checked.is_current()


_Answer = SaslHandshakeResponse | SaslAuthenticateResponse | ApiVersionsResponse
_REFUSED_LATER: dict[int, Callable[[], _Answer]] = {
    apis.API_VERSIONS.key: lambda: ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE),
    apis.SASL_HANDSHAKE.key: lambda: SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE),
}


def _encoded(header: RequestHeader, response: _Answer) -> bytes:
    pieces = encode(API_BY_KEY[header.api_key], header, response)
    return b"".join(each for each in pieces if isinstance(each, bytes))
