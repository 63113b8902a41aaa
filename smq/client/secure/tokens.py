"""Where a client's tokens for OAUTHBEARER come from: a callback, a file, or its issuer's endpoint.

    TokenSource ─ Callback       oauth_cb of the program, as confluent-kafka names it
                ─ TokenFile      file:///…, as something else on this host writes it
                ─ TokenEndpoint  https://…, by client id and secret (RFC 6749, 4.4)

A token is kept for most of its life, and asked for anew by the connection that is opened then.
Tokens and secrets appear in no text that these classes make.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlencode, urlsplit

from smq.client.clock import Clock
from smq.client.errors import AuthenticationFailed, BrokerUnavailable
from smq.security.listener_rules import is_loopback

USED_SHARE = 0.8  # Of a token's life. A connection ends after more of it, so the next has another.
LIFE_SECONDS_MAX = 1e9  # Beyond it, and where it is none, a token is used once.
TOKEN_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 2 * TOKEN_BYTES_MAX
ENDPOINT_SECONDS_MAX = 10.0  # As Kafka's clients wait.
_TOKEN = re.compile(r"[-\w.~+/]+=*", re.ASCII)  # b64token of RFC 6750.
_ERROR = re.compile(r"[a-z_]{1,40}")  # Of RFC 6749: a word, which tells no secret.

OAuthCallback: TypeAlias = Callable[[str], tuple[Any, ...]]
"""Takes `sasl.oauthbearer.config`, and returns a token and the time when it ends, in seconds since
1970; what may follow (principal, extensions) is not used."""


class KeptToken(NamedTuple):
    """A token; `ends_s` in monotonic time."""

    token: str
    ends_s: float


@dataclass
class TokenSource:
    """Gives tokens. Threads may share it: at worst two of them ask at the same time."""

    def __post_init__(self) -> None:
        self._kept: KeptToken | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A pickled copy asks for a token of its own."""
        return {**self.__dict__, "_kept": None}

    def token(self, clock: Clock) -> str:
        """A token that lasts for a while. Raises AuthenticationFailed, and BrokerUnavailable if it
        may be had later."""
        kept, now_s = self._kept, clock.monotonic_s()
        if kept is None or now_s >= kept.ends_s:
            token, lasts_s = self._fetch(clock)
            if len(token) > TOKEN_BYTES_MAX or not _TOKEN.fullmatch(token):
                raise AuthenticationFailed(f"{self._name()} gives no token")
            used_s = USED_SHARE * lasts_s if 0 < lasts_s < LIFE_SECONDS_MAX else 0
            kept = self._kept = KeptToken(token, now_s + used_s)
        return kept.token

    def _name(self) -> str:
        raise NotImplementedError

    def _fetch(self, clock: Clock) -> tuple[str, float]:
        """A token, and how many seconds it lasts."""
        raise NotImplementedError


@dataclass
class Callback(TokenSource):
    """A function of the program."""

    callback: OAuthCallback = field(repr=False)
    config: str = field(default="", repr=False)

    def _name(self) -> str:
        return "oauth_cb"

    def _fetch(self, clock: Clock) -> tuple[str, float]:
        try:
            token, ends_s, *_ = self.callback(self.config)
            lasts_s = float(ends_s) - clock.wall_ms() / 1000
        except Exception as error:
            raise AuthenticationFailed(
                f"oauth_cb has raised {type(error).__name__}; it should return a token and the "
                "time when it ends, in seconds since 1970"
            ) from error
        return token if isinstance(token, str) else "", lasts_s


@dataclass
class TokenFile(TokenSource):
    """A file with a token alone. It is read each time."""

    path: str

    def _name(self) -> str:
        return f"the file {self.path}"

    def _fetch(self, clock: Clock) -> tuple[str, float]:
        del clock
        try:
            with Path(self.path).open("rb") as file:
                data = file.read(TOKEN_BYTES_MAX + 1)
        except OSError as error:
            raise AuthenticationFailed(f"{self._name()} cannot be read: {error}") from error
        return data.decode("ascii", "replace").strip(), 0


@dataclass
class TokenEndpoint(TokenSource):
    """The endpoint of an issuer, which knows the program by an id and a secret."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""
    authorities: str = ""
    """A file of authorities that its certificate may be from; "": those of the system."""

    def _name(self) -> str:
        return f"the token endpoint at {urlsplit(self.url).hostname}"

    def _fetch(self, clock: Clock) -> tuple[str, float]:
        until_s = clock.monotonic_s() + ENDPOINT_SECONDS_MAX
        try:
            with (
                closing(self._connection()) as connection,
                closing(self._ask(connection)) as response,
            ):
                data = self._read(response, until_s, clock)
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise BrokerUnavailable(f"{self._name()} does not answer: {why}") from error
        return self._taken(response.status, data)

    def _connection(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None, "the URL has been checked"
        if parts.scheme == "http":
            return HTTPConnection(parts.hostname, parts.port, timeout=ENDPOINT_SECONDS_MAX)
        import ssl  # noqa: PLC0415  (takes its time)

        context = ssl.create_default_context(cafile=self.authorities or None)
        return HTTPSConnection(
            parts.hostname, parts.port, timeout=ENDPOINT_SECONDS_MAX, context=context
        )

    def _ask(self, connection: HTTPConnection) -> HTTPResponse:
        fields = {"grant_type": "client_credentials"}
        if self.scope:
            fields["scope"] = self.scope
        known = b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
        parts = urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(
            "POST",
            target,
            urlencode(fields),
            {
                "Authorization": f"Basic {known}",
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        return connection.getresponse()

    def _read(self, response: HTTPResponse, until_s: float, clock: Clock) -> bytes:
        data = b""
        while piece := response.read1(ANSWER_BYTES_MAX):
            data += piece
            if len(data) > ANSWER_BYTES_MAX or clock.monotonic_s() > until_s:
                raise AuthenticationFailed(f"{self._name()} answers without end")
        return data

    def _taken(self, status: int, data: bytes) -> tuple[str, float]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        answer = found if isinstance(found, dict) else {}
        if status >= 500 or status == 429:
            raise BrokerUnavailable(f"{self._name()} answers {status}")
        if status != 200:
            said = answer.get("error")
            why = f" ({said})" if isinstance(said, str) and _ERROR.fullmatch(said) else ""
            raise AuthenticationFailed(
                f"{self._name()} answers {status}{why}; check the client's id and secret"
            )
        token, lasts_s = answer.get("access_token"), answer.get("expires_in", 0)
        is_number = isinstance(lasts_s, int | float) and not isinstance(lasts_s, bool)
        return token if isinstance(token, str) else "", lasts_s if is_number else 0


def why_no_endpoint(url: str) -> str:
    """Why a secret is not sent to a URL; "": it may be."""
    try:
        parts = urlsplit(url)
        host, has_port = parts.hostname or "", parts.port != 0
    except ValueError:
        host, has_port, parts = "", False, urlsplit("")
    if not (host and has_port) or parts.scheme not in {"https", "http"} or not url.isascii():
        return "it is no https://, http:// or file:/// URL"
    if "@" in parts.netloc or not url.isprintable() or " " in url:
        return "it has a user, or letters that belong percent-encoded"
    if parts.scheme == "http" and not is_loopback(host):
        return "it would show the secret to others on the way; use https"
    return ""
