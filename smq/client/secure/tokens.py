"""Where a client's tokens for OAUTHBEARER come from: a callback, a file, or its issuer's endpoint.

    TokenSource ─ Callback       oauth_cb of the program, as confluent-kafka names it
                ─ TokenFile      file:///…, as something else on this host writes it
                ─ TokenEndpoint  https://…, by client id and secret (RFC 6749, 4.4)

A token is kept for most of its life, and asked for anew by the connection that is opened then. If
none is to be had, the one from before is used while it lasts.
Tokens and secrets appear in no text that these classes make.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlencode, urlsplit

from smq.client.clock import Clock
from smq.client.errors import AuthenticationFailed, BrokerUnavailable
from smq.client.secure.exchange import Deadline, posted
from smq.model.errors import PeerError
from smq.model.named_files import read_named
from smq.security.listener_rules import is_loopback

USED_SHARE = 0.8  # Of a token's life. A connection ends after more of it, so the next has another.
GOOD_SHARE = 0.95  # If there is no other. Beyond, a connection would end as soon as it is open.
LIFE_SECONDS_MAX = 1e9  # Beyond it, and where it is none, a token is used once.
TOKEN_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 2 * TOKEN_BYTES_MAX
ENDPOINT_SECONDS_MAX = 10.0  # As Kafka's clients wait.
EARLY_SECONDS_MAX = 1.0  # While there is a good one; then …
ASK_AGAIN_SECONDS = 10.0  # … connections are opened without another one for a while.
_TOKEN = re.compile(r"[-\w.~+/]+=*", re.ASCII)  # b64token of RFC 6750.
_ERROR = re.compile(r"[a-z_]{1,40}")  # Of RFC 6749: a word, which tells no secret.

OAuthCallback: TypeAlias = Callable[[str], tuple[Any, ...]]
"""Takes `sasl.oauthbearer.config`, and returns a token and the time when it ends, in seconds since
1970; what may follow (principal, extensions) is not used."""


class KeptToken(NamedTuple):
    """A token. In monotonic time: when the next one is asked for, and when this one ends."""

    token: str
    used_until_s: float
    ends_s: float


@dataclass
class TokenSource:
    """Gives tokens. Threads may share it: at worst two of them ask at the same time."""

    def __post_init__(self) -> None:
        self._kept: KeptToken | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A pickled copy asks for a token of its own."""
        return {**self.__dict__, "_kept": None}

    def token(self, clock: Clock, seconds_max: float = ENDPOINT_SECONDS_MAX) -> str:
        """A token that lasts for a while; an endpoint is waited for so long at most. Raises
        AuthenticationFailed, and BrokerUnavailable if it may be had later; neither while there is
        one that is still good."""
        kept, now_s = self._kept, clock.monotonic_s()
        if kept is not None and now_s < kept.used_until_s:
            return kept.token
        if kept is None or now_s >= kept.ends_s:
            found = self._ask(clock, now_s, min(seconds_max, ENDPOINT_SECONDS_MAX))
        else:
            try:
                found = self._ask(clock, now_s, min(seconds_max, EARLY_SECONDS_MAX))
            except (AuthenticationFailed, BrokerUnavailable):
                again_s = min(now_s + ASK_AGAIN_SECONDS, kept.ends_s)
                found = kept._replace(used_until_s=again_s)
        self._kept = found
        return found.token

    def _ask(self, clock: Clock, now_s: float, seconds_max: float) -> KeptToken:
        token, lasts_s = self._fetch(clock, seconds_max)
        if len(token) > TOKEN_BYTES_MAX or not _TOKEN.fullmatch(token):
            raise AuthenticationFailed(f"{self._name()} gives no token")
        life_s = lasts_s if 0 < lasts_s < LIFE_SECONDS_MAX else 0
        return KeptToken(token, now_s + USED_SHARE * life_s, now_s + GOOD_SHARE * life_s)

    def _name(self) -> str:
        raise NotImplementedError

    def _fetch(self, clock: Clock, seconds_max: float) -> tuple[str, float]:
        """A token, which is waited for so long, and how many seconds it lasts."""
        raise NotImplementedError


@dataclass
class Callback(TokenSource):
    """A function of the program."""

    callback: OAuthCallback = field(repr=False)
    config: str = field(default="", repr=False)

    def _name(self) -> str:
        return "oauth_cb"

    def _fetch(self, clock: Clock, seconds_max: float) -> tuple[str, float]:
        del seconds_max
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

    def _fetch(self, clock: Clock, seconds_max: float) -> tuple[str, float]:
        del clock, seconds_max
        try:
            data = read_named(self.path, TOKEN_BYTES_MAX)
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

    def _fetch(self, clock: Clock, seconds_max: float) -> tuple[str, float]:
        fields = {"grant_type": "client_credentials"}
        if self.scope:
            fields["scope"] = self.scope
        known = b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
        headers = {
            "Authorization": f"Basic {known}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Connection": "close",
        }
        deadline = Deadline(clock, clock.monotonic_s() + seconds_max)
        asked = self.url, urlencode(fields), headers, self.authorities
        try:
            status, data = posted(*asked, ANSWER_BYTES_MAX, deadline)
        except PeerError as error:
            raise AuthenticationFailed(f"{self._name()} answers without end") from error
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"{self._name()} gives no whole answer in {seconds_max:.3g} seconds"
            ) from error
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise BrokerUnavailable(f"{self._name()} does not answer: {why}") from error
        return self._taken(status, data)

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
