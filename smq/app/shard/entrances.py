"""The entrances of a shard: one for each listener, as the settings say.

A start without usable keys is refused. Once the broker has served, a file that goes bad may not
take the other entrances with it: one without keys lets nobody in until its file is good again.
"""

import secrets
from collections.abc import Callable
from functools import partial

from gateway.login import LoginRules
from smq.app.process.key_stores import TlsSettings, UnusableKeys, WatchedContext
from smq.app.process.token_keys import UnusableTokens, WatchedTokens
from smq.app.shard.connections.entrance import Entrance
from smq.model.config import Config
from smq.security.credentials import Credentials
from smq.security.decoys import Decoys
from smq.security.distinguished_names import MappingRules
from smq.security.external import NAME as EXTERNAL, ExternalServer
from smq.security.listeners import GRPC, HTTP, Listener, listeners_of
from smq.security.mechanisms import LoginServers, MakeNonce, enabled_mechanisms
from smq.security.oauthbearer import NAME as OAUTHBEARER

NONCE_BYTES = 18
_SAID = LoginRules((EXTERNAL,), lambda _: ExternalServer(), lambda _: 0)
FRONT_ENTRANCE = Entrance(HTTP, rules=_SAID, is_front=True)
"""Users who have logged in by HTTP, as the front says."""
AGENT_ENTRANCE = Entrance(GRPC, rules=_SAID, is_front=True)
"""Users who have logged in by gRPC, as the agent says."""


def make_nonce() -> str:
    """Nobody can guess it."""
    return secrets.token_urlsafe(NONCE_BYTES)


def _nobody() -> None:
    """Nobody follows the keys."""


class Entrances:
    """By the names of the listeners in `of`. `secret` makes decoys for users that there are not.

    when_issuers_keys_change   called when some of the keys that sign tokens have come or gone
    """

    def __init__(  # noqa: PLR0913  (what a shard has, and whether it is a restarted one)
        self,
        config: Config,
        credentials: Credentials,
        secret: bytes,
        say: Callable[[str], None],
        nonce: MakeNonce = make_nonce,
        *,
        has_served: bool = False,
    ) -> None:
        """Raises SystemExit if keys cannot be used, unless the broker `has_served`."""
        self._config, self._say, self._has_served = config, say, has_served
        self._servers = LoginServers(credentials, Decoys(secret), nonce)
        self._watched: dict[str, WatchedContext] = {}
        self._watched_tokens: list[WatchedTokens] = []
        self.when_issuers_keys_change: Callable[[], None] = _nobody
        self.of = {each.name: self._entrance(each) for each in listeners_of(config)}

    def look(self) -> None:
        """Read keys that have changed. Called once a second."""
        for keys in self._watched.values():
            keys.look()
        have_changed = [tokens.look() for tokens in self._watched_tokens]
        if any(have_changed):
            self.when_issuers_keys_change()

    def certificates_end_ms(self) -> list[int]:
        """For each listener, in the order of the settings, the wall time when its first certificate
        ends; 0: it has none."""
        ends = {name: watched.end_ms for name, watched in self._watched.items()}
        return [ends.get(name, 0) for name in self.of]

    def _entrance(self, listener: Listener) -> Entrance:
        protocol = listener.protocol
        entrance = Entrance(listener.name)
        if protocol.has_sasl:
            entrance = entrance._replace(rules=self._rules(listener))
        if protocol.has_tls:
            naming = MappingRules(listener.setting(self._config, "ssl.principal.mapping.rules"))
            watched = self._watch(listener)
            entrance = entrance._replace(context=lambda: watched.context, naming=naming)
        return entrance

    def _rules(self, listener: Listener) -> LoginRules:
        config = self._config
        enabled = enabled_mechanisms(listener.setting(config, "sasl.enabled.mechanisms"))
        lifetime_ms = partial(listener.setting, config, "connections.max.reauth.ms")
        begin = self._servers.begin
        if OAUTHBEARER in enabled:
            begin = partial(begin, tokens=self._watch_tokens(listener).tokens)
        return LoginRules(enabled, begin, lifetime_ms)

    def _watch_tokens(self, listener: Listener) -> WatchedTokens:
        try:
            watched = WatchedTokens(self._config, listener, self._say, has_served=self._has_served)
        except UnusableTokens as reason:
            raise SystemExit(f"smq: {reason}") from reason
        self._watched_tokens.append(watched)
        return watched

    def _watch(self, listener: Listener) -> WatchedContext:
        try:
            watched = WatchedContext(
                TlsSettings.of(self._config, listener), self._say, has_served=self._has_served
            )
        except UnusableKeys as reason:
            raise SystemExit(f"smq: {reason}") from reason
        self._watched[listener.name] = watched
        return watched
