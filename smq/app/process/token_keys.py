"""Which tokens a listener takes by OAUTHBEARER, with their issuer's keys from a file (JWKS). It is
read again when it changes; one that cannot be used leaves the old keys, or none where a restarted
process has none.
"""

from collections.abc import Callable
from pathlib import Path

from smq.app.process.clock import wall_ms
from smq.app.process.watched_files import Sentences, UnusableFile, WatchedFiles
from smq.model.config import Config
from smq.model.named_files import read_named
from smq.model.security_settings import CLOCK_SKEW_SECONDS_MAX
from smq.model.urls import path_of_file_url
from smq.security.listeners import Listener
from smq.security.mechanisms import enabled_mechanisms
from smq.security.oauthbearer import NAME as OAUTHBEARER
from smq.security.tokens import InvalidToken, Keys, Signed, TokenRules, Tokens

FILE_BYTES_MAX = 1024 * 1024  # Three keys with their certificates have some kilobytes.
STAYS = "the keys from before stay in use"
NOBODY = "no token is taken there until it can be used; all else is served"
_BEGIN = "sasl.oauthbearer."


class UnusableTokens(UnusableFile):
    """Nobody could log in with a token; a sentence."""


class NoKeys:
    """Those of an issuer whose file cannot be used: they have signed nothing; implements Keys."""

    def opened(self, _token: str) -> Signed:
        """See Keys."""
        raise InvalidToken("there are no keys")

    def has(self, _key: str) -> bool:
        """See Keys."""
        return False


class WatchedTokens:
    """The tokens that a listener takes; `look` reads a changed file again."""

    def __init__(
        self,
        config: Config,
        listener: Listener,
        say: Callable[[str], None],
        *,
        has_served: bool = False,
    ) -> None:
        """Raises UnusableTokens, unless the broker `has_served`: then no token is good until the
        file can be used."""
        self._setting = f"{_BEGIN}jwks.endpoint.url ({listener.name})"
        self._path = Path(path_of_file_url(_value(config, listener, "jwks.endpoint.url")))
        self._watched = WatchedFiles[Keys](
            lambda: [self._path],
            self._read,
            Sentences(f"{self._setting}: the keys have been read again", STAYS, NOBODY),
            say,
            NoKeys() if has_served else None,
        )
        self.tokens = Tokens(_rules(config, listener), self._watched.value, wall_ms)

    def look(self) -> bool:
        """Use a file that has changed, and tell whether there are other keys now. Called about once
        a second."""
        self._watched.look()
        former, self.tokens.keys = self.tokens.keys, self._watched.value
        return self.tokens.keys is not former

    def _read(self) -> Keys:
        try:
            from smq.security.jwks import PublishedKeys, UnusableJwks  # noqa: PLC0415  (an extra)
        except ImportError as reason:
            raise UnusableTokens(
                "sasl.enabled.mechanisms: OAUTHBEARER needs `pip install smq-broker[security]`"
            ) from reason
        try:
            data = read_named(self._path, FILE_BYTES_MAX)
        except OSError as reason:
            raise UnusableTokens(
                f"{self._setting}: {self._path} cannot be read: {reason}"
            ) from reason
        try:
            return PublishedKeys(data)
        except UnusableJwks as reason:
            raise UnusableTokens(
                f"{self._setting}: {self._path} is no JWKS that can be used: {reason}"
            ) from reason


def why_no_tokens(config: Config, listener: Listener) -> str:
    """Why nobody could log in by OAUTHBEARER, which the listener should speak; "": all is well."""
    if not listener.protocol.has_sasl:
        return ""
    if OAUTHBEARER not in enabled_mechanisms(listener.setting(config, "sasl.enabled.mechanisms")):
        return ""
    return why_unusable(config, listener)


def why_unusable(config: Config, listener: Listener) -> str:
    """Why the file of the issuer's keys cannot be used, for a listener that takes tokens; "": it
    can."""
    try:
        WatchedTokens(config, listener, lambda _: None)
    except UnusableTokens as reason:
        return str(reason)
    return ""


def _value(config: Config, listener: Listener, suffix: str) -> str:
    return str(listener.setting(config, _BEGIN + suffix, OAUTHBEARER))


def _rules(config: Config, listener: Listener) -> TokenRules:
    audiences = _value(config, listener, "expected.audience").split(",")
    skew_seconds = int(_value(config, listener, "clock.skew.seconds"))
    assert 0 <= skew_seconds <= CLOCK_SKEW_SECONDS_MAX, "the setting has bounds"
    return TokenRules(
        frozenset(name for each in audiences if (name := each.strip())),
        _value(config, listener, "expected.issuer"),
        _value(config, listener, "sub.claim.name"),
        _value(config, listener, "scope.claim.name"),
        1000 * skew_seconds,
    )
