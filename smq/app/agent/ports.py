"""SeaweedMQ's two ports as listeners: their keys, and the gates through which calls come."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from shm.timings import RpcTimings
from smq.app.agent.certificates import GrpcKeys
from smq.app.agent.gate import LOOK_S, CallGate
from smq.app.agent.logins import MetadataLogins
from smq.app.process.inheritance import Inheritance
from smq.app.process.key_stores import TlsSettings, UnusableKeys
from smq.app.process.token_keys import UnusableTokens, WatchedTokens
from smq.front.logins import HttpLogins, Passwords
from smq.model.client_quotas import Quotas
from smq.model.config import Config
from smq.model.printable import say_error
from smq.security.access import AccessView
from smq.security.decoys import Decoys
from smq.security.distinguished_names import MappingRules
from smq.security.listener_rules import takes_tokens_by_grpc
from smq.security.listeners import GRPC_NAMES, Listener, grpc_listeners
from smq.security.plain import PlainServer
from smq.shard.quotas import ClientQuotas

KEYS_S = 1.0  # Between two looks at the files of keys, and at quotas.


class ServedPort(NamedTuple):
    """A port. What it lacks is None: TLS, tokens, logins."""

    listener: Listener
    gate: CallGate
    keys: GrpcKeys | None = None
    tokens: WatchedTokens | None = None
    logins: HttpLogins | None = None

    def look(self) -> None:
        """Read files that have changed. Called about once a second."""
        for each in (self.keys, self.tokens):
            if each is not None:
                each.look()


def ports_of(
    inheritance: Inheritance, access: AccessView, quotas: ClientQuotas
) -> Mapping[str, ServedPort]:
    """The ports that are on, by their settings. Raises SystemExit with a sentence."""
    try:
        return dict(_ports(inheritance, access, quotas))
    except (UnusableKeys, UnusableTokens) as reason:
        raise SystemExit(f"smq: {reason}") from reason


def _ports(
    inheritance: Inheritance, access: AccessView, quotas: ClientQuotas
) -> Iterator[tuple[str, ServedPort]]:
    config, has_served = inheritance.config, inheritance.has_served
    for setting, listener in grpc_listeners(config).items():
        keys = tokens = logins = naming = None
        if listener.protocol.has_tls:
            keys = GrpcKeys(TlsSettings.of(config, listener), say_error, has_served=has_served)
            naming = MappingRules(listener.setting(config, "ssl.principal.mapping.rules"))
        if takes_tokens_by_grpc(config, listener):
            tokens = WatchedTokens(config, listener, say_error, has_served=has_served)
        if listener.protocol.has_sasl:
            logins = _logins(config, listener, access, Decoys(inheritance.decoy_secret), tokens)
        gate = CallGate(
            listener.name,
            access,
            quotas,
            logins=None if logins is None else _by_metadata(config, listener, logins),
            naming=naming,
            lifetime_ms=listener.setting(config, "connections.max.reauth.ms"),
        )
        yield setting, ServedPort(listener, gate, keys, tokens, logins)


def _by_metadata(config: Config, listener: Listener, logins: HttpLogins) -> MetadataLogins:
    takes_passwords = listener.protocol.has_tls or config.allow_plaintext
    return MetadataLogins(logins, takes_passwords=takes_passwords)


def _logins(
    config: Config,
    listener: Listener,
    access: AccessView,
    decoys: Decoys,
    tokens: WatchedTokens | None,
) -> HttpLogins:
    return HttpLogins(
        Passwords(partial(PlainServer, access, decoys), access.refresh),
        access.rights_of,
        config.connection_failed_authentication_delay_ms / 1000,
        tokens=None if tokens is None else tokens.tokens,
        audit=access.audit,
        listener=listener.name,
    )


class PortWatch:
    """Keeps looking at what may end streams, at quotas, and at files with keys."""

    def __init__(
        self,
        ports: Mapping[str, ServedPort],
        quotas: ClientQuotas,
        current: Callable[[], Quotas],
        timings: RpcTimings,
    ) -> None:
        self._ports, self._quotas, self._current = [*ports.values()], quotas, current
        self._timings, self._keys = timings, [ports.get(name) for name in GRPC_NAMES]

    async def keep_judging(self) -> None:
        """Judge what is open, for ever."""
        while True:
            for each in self._ports:
                await each.gate.look()
            await asyncio.sleep(LOOK_S)

    async def keep_reading(self) -> None:
        """Use quotas and files that have changed, for ever."""
        while True:
            self._quotas.take(self._current())
            self._timings.ends[:] = [*map(_end_ms, self._keys)]
            await asyncio.sleep(KEYS_S)
            for each in self._ports:
                each.look()


def _end_ms(port: ServedPort | None) -> int:
    return 0 if port is None or port.keys is None else port.keys.end_ms
