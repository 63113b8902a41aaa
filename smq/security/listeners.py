"""The listeners of a broker: their names, protocols, addresses and settings, as in Kafka.

    listeners=INSIDE://127.0.0.1:9092,OUTSIDE://0.0.0.0:9192
    advertised.listeners=OUTSIDE://queue.example:9192
    listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL
    listener.name.outside.ssl.keystore.location=/etc/smq/broker.pem

Every node has each listener, on the given port + its number - 1. `host`, `port` and `advertise` are
the short form of one listener, PLAINTEXT.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from smq.model.config import SETTINGS, Config, bracketed, host_and_port
from smq.model.security_settings import LISTENER_PREFIX

DEFAULT_NAME = "PLAINTEXT"
HTTP = "HTTP"
"""The name of HTTP's door: of its settings, and for who asks there."""
GRPC, AGENT = "GRPC", "AGENT"
"""The names of SeaweedMQ's doors, likewise."""
GRPC_NAMES = {"grpc.port": GRPC, "agent.port": AGENT}
"""These names, by the settings of the ports."""
UNIX = "unix"
"""The listener for this host's users, by unix sockets. Names in settings are upper-case."""
_LISTENER = re.compile(r"\s*([A-Za-z0-9_-]+)://(.*?)\s*")
_MAPPED = re.compile(r"\s*([A-Za-z0-9_-]+)\s*:\s*([A-Za-z_]+)\s*")
_CLIENT_AUTH = "ssl.client.auth"
EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104  (what is listened on)


class Protocol(Enum):
    """What is spoken on a listener: whether in TLS, and whether clients log in by SASL."""

    PLAINTEXT = (False, False)
    SSL = (True, False)
    SASL_PLAINTEXT = (False, True)
    SASL_SSL = (True, True)

    @property
    def has_tls(self) -> bool:
        return self.value[0]

    @property
    def has_sasl(self) -> bool:
        return self.value[1]


class Endpoint(NamedTuple):
    """A host, and the first node's port. As listened on, port 0 means a free one; as advertised,
    the port that is listened on."""

    host: str
    port: int


class Listener(NamedTuple):
    """One listener of every node."""

    name: str
    protocol: Protocol
    listens: Endpoint
    advertises: Endpoint

    def advertised(self, node_index: int, listen_port: int) -> Endpoint:
        """Where clients reach the listener of a node that listens on this port."""
        host, port = self.advertises
        return Endpoint(host, port + node_index if port else listen_port)

    def listen_port(self, node_index: int) -> int:
        """The port of a node; 0: any free one."""
        return self.listens.port + node_index if self.listens.port else 0

    def setting(self, config: Config, name: str, mechanism: str = "") -> Any:  # noqa: ANN401  (of any setting)
        """A setting's value for this listener, or for one SASL mechanism of it."""
        own = dict(config.listener_settings)
        prefix = f"{LISTENER_PREFIX}{self.name.lower()}."
        names = (f"{prefix}{mechanism.lower()}.{name}", prefix + name)
        found = (own[each] for each in names if each in own)
        return next(found, getattr(config, SETTINGS[name].key))

    def client_auth(self, config: Config) -> str:
        """Whether clients show a certificate. Beside logins a listener asks for them by its own
        setting alone, as in Kafka (KIP-684)."""
        own_name = f"{LISTENER_PREFIX}{self.name.lower()}.{_CLIENT_AUTH}"
        asks = own_name in dict(config.listener_settings) or not self.protocol.has_sasl
        return str(self.setting(config, _CLIENT_AUTH)) if asks else "none"

    def ignores_client_auth(self, config: Config) -> bool:
        """Whether it asks for no certificate though the setting of all says so."""
        wanted = self.setting(config, _CLIENT_AUTH) != self.client_auth(config)
        return self.protocol.has_tls and wanted


def http_host(config: Config) -> str:
    """The address that HTTP listens on."""
    return config.http_host or config.host


def http_listener(config: Config) -> Listener | None:
    """HTTP as a listener with settings of its own; None: it is off."""
    if config.http_port < 0:
        return None
    endpoint = Endpoint(http_host(config), config.http_port)
    return Listener(HTTP, Protocol[config.http_security_protocol], endpoint, endpoint)


def grpc_ports(config: Config) -> dict[str, int]:
    """The ports of SeaweedMQ's services that are on, by their settings."""
    asked = {"grpc.port": config.grpc_port, "agent.port": config.agent_port}
    return {name: port for name, port in asked.items() if port >= 0}


def grpc_listeners(config: Config) -> dict[str, Listener]:
    """SeaweedMQ's services that are on, as listeners, by the settings of their ports. What the map
    of protocols does not name is plain. Raises ValueError with a sentence."""
    protocols = _protocols(config.listener_security_protocol_map)
    found = {}
    for setting, port in grpc_ports(config).items():
        endpoint = Endpoint(config.grpc_host, port)
        name = GRPC_NAMES[setting]
        protocol = Protocol[protocols.get(name, Protocol.PLAINTEXT.name)]
        found[setting] = Listener(name, protocol, endpoint, endpoint)
    return found


def grpc_told(config: Config) -> str:
    """The address at which SeaweedMQ's clients are told to reach the broker service; its port is
    known."""
    return config.grpc_advertise or f"{bracketed(config.grpc_host)}:{config.grpc_port}"


def http_told_host(config: Config) -> str:
    """The host at which clients are told to reach HTTP."""
    host, first = http_host(config), listeners_of(config)[0].advertises.host
    is_kafkas = not (config.http_host or config.listeners)
    return first if is_kafkas or host in EVERYWHERE else host


@lru_cache(maxsize=64)
def listeners_of(config: Config) -> tuple[Listener, ...]:
    """The listeners, in the order in which they are given. Raises ValueError with a sentence."""
    if config.listeners:
        listen, asked = _endpoints("listeners", config.listeners), config.advertised_listeners
        advertise = _endpoints("advertised.listeners", asked) if asked else {}
        _check_advertised(listen, advertise)
    else:
        listen = {DEFAULT_NAME: Endpoint(config.host, config.port)}
        try:
            told = Endpoint(*host_and_port(config.advertise or bracketed(config.host)))
        except ValueError as reason:
            raise ValueError(f"advertise: {reason}") from None
        advertise = {DEFAULT_NAME: told}
    protocols = _protocols(config.listener_security_protocol_map)
    return tuple(
        Listener(
            name,
            _protocol_of(name, protocols),
            endpoint,
            advertise.get(name, Endpoint(endpoint.host, 0)),
        )
        for name, endpoint in listen.items()
    )


def _check_advertised(listen: Mapping[str, Endpoint], advertise: Mapping[str, Endpoint]) -> None:
    for name in advertise:
        if name not in listen:
            raise ValueError(
                f"advertised.listeners: {name} is none of the listeners ({', '.join(listen)})"
            )
    for name, endpoint in listen.items():
        if advertise.get(name, endpoint).host in EVERYWHERE:
            raise ValueError(
                f"advertised.listeners: {name} listens on every address, so clients must be told "
                f"one: give {name}://<host> in advertised.listeners"
            )


def _endpoints(setting: str, text: str) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for each in text.split(","):
        matched = _LISTENER.fullmatch(each)
        if matched is None:
            raise ValueError(f"{setting}: {each.strip()!r} is no NAME://host:port")
        name, address = matched[1].upper(), matched[2]
        if name in found:
            raise ValueError(f"{setting}: there are two listeners {name}; give each its own name")
        found[name] = _endpoint(setting, address)
    return found


def _endpoint(setting: str, address: str) -> Endpoint:
    host, colon, port = address.rpartition(":")
    if setting == "listeners" and not (colon and port):
        raise ValueError(f"listeners: {address!r} has no port; write host:port, 0 for a free one")
    if not host and colon:  # As in Kafka: every address.
        address = f"0.0.0.0:{port}"
    try:
        return Endpoint(*host_and_port(address))
    except ValueError as reason:
        raise ValueError(f"{setting}: {reason}") from None


def _protocols(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in text.split(","):
        matched = _MAPPED.fullmatch(each)
        if matched is None:
            raise ValueError(
                f"listener.security.protocol.map: {each.strip()!r} is no NAME:PROTOCOL"
            )
        name, protocol = matched[1].upper(), matched[2].upper()
        if name in found:
            raise ValueError(f"listener.security.protocol.map: it names {name} twice")
        if protocol not in Protocol.__members__:
            raise ValueError(
                f"listener.security.protocol.map: {protocol} is none of "
                f"{', '.join(Protocol.__members__)}"
            )
        found[name] = protocol
    return found


def _protocol_of(name: str, protocols: Mapping[str, str]) -> Protocol:
    if name not in protocols:
        raise ValueError(
            f"listener.security.protocol.map: it has no protocol for the listener {name}; add "
            f"{name}:SASL_SSL, or another of {', '.join(Protocol.__members__)}"
        )
    return Protocol[protocols[name]]


def ranges_that_overlap(
    listeners: Sequence[Listener], nodes: int
) -> Iterator[tuple[Listener, Listener]]:
    """Pairs of listeners of which two nodes would need the same port."""
    fixed = [each for each in listeners if each.listens.port]
    for i, one in enumerate(fixed):
        for other in fixed[i + 1 :]:
            if abs(one.listens.port - other.listens.port) < nodes:
                yield one, other
