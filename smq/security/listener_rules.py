"""When a start is refused because of its listeners, each time with a sentence that says what to do.

Beyond loopback a listener needs encryption, peers that are identified, and an authorizer. Whoever
wants less says so with `allow.plaintext` or `allow.anonymous`.
"""

import ipaddress
from collections.abc import Callable, Iterator

from smq.model.config import SETTINGS, Config, host_and_port
from smq.model.config_rules import Problem
from smq.model.security_settings import LISTENER_PREFIX, SHORT_FORM
from smq.model.urls import path_of_file_url
from smq.security.distinguished_names import MappingRules
from smq.security.listeners import (
    EVERYWHERE,
    HTTP,
    Listener,
    Protocol,
    grpc_listeners,
    grpc_ports,
    http_listener,
    listeners_of,
    ranges_that_overlap,
)
from smq.security.mechanisms import MECHANISMS, enabled_mechanisms
from smq.security.oauthbearer import NAME as OAUTHBEARER

PORT_MAX = 65535
TLS_VERSIONS = {"TLSv1.2", "TLSv1.3"}


def problems_of_listeners(config: Config) -> Iterator[Problem]:
    """Everything that is wrong with the listeners."""
    try:
        listeners = listeners_of(config)
    except ValueError as reason:
        yield Problem(str(reason), ("listeners",))
        return
    yield from _conflicts_of_forms(config)
    if config.listeners:  # The short form's are in smq.model.config_rules.
        yield from _problems_of_ports(config, listeners)
    yield from _settings_of_nobody(config, listeners)
    yield from _problems_of_http(config, listeners)
    yield from _problems_of_grpc(config, listeners)
    for listener in listeners:
        for rule in _RULES:
            yield from map(Problem, rule(config, listener))


def _conflicts_of_forms(config: Config) -> Iterator[Problem]:
    if config.listeners:
        changed = config.changed()
        given = [name for name in SHORT_FORM if name in changed]
        if given:
            yield Problem(
                f"listeners: {' and '.join(given)} cannot be set beside it; say it in listeners "
                "and advertised.listeners"
            )
    elif config.advertised_listeners:
        yield Problem("advertised.listeners: set listeners too, or use advertise")


def _problems_of_ports(config: Config, listeners: tuple[Listener, ...]) -> Iterator[Problem]:
    nodes = config.shards
    for one, other in ranges_that_overlap(listeners, nodes):
        yield Problem(
            f"listeners: {nodes} shards take {nodes} ports each from {one.listens.port} "
            f"({one.name}) and from {other.listens.port} ({other.name}): choose ports that are "
            f"{nodes} apart"
        )
    for each in listeners:
        first = each.listens.port
        if first and first + nodes - 1 > PORT_MAX:
            yield Problem(
                f"listeners: {nodes} shards take ports {first} to {first + nodes - 1} for "
                f"{each.name}, but the last port is {PORT_MAX}; choose a lower one"
            )
        if config.http_port > 0 and first and 0 <= config.http_port - first < nodes:
            yield Problem(
                f"http.port: {config.http_port} is a port of the listener {each.name}; choose "
                "another"
            )


def _settings_of_nobody(config: Config, listeners: tuple[Listener, ...]) -> Iterator[Problem]:
    http = http_listener(config)
    others = [*([http] if http else []), *grpc_listeners(config).values()]
    names = {each.name.lower() for each in (*listeners, *others)}
    for setting, _ in config.listener_settings:
        name, _, suffix = setting.removeprefix(LISTENER_PREFIX).partition(".")
        mechanism = suffix.partition(".")[0]
        if name not in names:
            yield Problem(
                f"{setting}: there is no listener {name.upper()}; it is one of "
                f"{', '.join(sorted(names)).upper()}"
            )
        elif suffix not in SETTINGS and mechanism.upper() not in MECHANISMS:
            yield Problem(
                f"{setting}: {mechanism} is none of the mechanisms {', '.join(MECHANISMS).lower()}"
            )


def _problems_of_http(config: Config, listeners: tuple[Listener, ...]) -> Iterator[Problem]:
    """Of its keys, and beyond loopback. On `host` the rule of the short form says the same."""
    is_open = config.http_port >= 0 and config.http_host and not is_loopback(config.http_host)
    if is_open and not (config.authorizer_class_name or config.allow_plaintext):
        yield Problem(
            f"http.host: HTTP would be reached from other hosts at {config.http_host} without "
            "logins; set authorizer.class.name, listen on 127.0.0.1, or accept that with "
            "allow.plaintext=true"
        )
    http = http_listener(config)
    if http is None:
        return
    if any(each.name == HTTP for each in listeners):
        yield Problem("listeners: HTTP is the name of HTTP's own door; choose another")
    if http.protocol.has_tls and http.client_auth(config) != "none":
        yield Problem(
            "http.security.protocol: HTTP asks for no certificates; set "
            "listener.name.http.ssl.client.auth=none"
        )
    yield from map(Problem, _needs_keys(config, http))
    if takes_tokens_by_http(config):
        yield from map(Problem, _problems_of_tokens(config, http))


def _problems_of_grpc(config: Config, listeners: tuple[Listener, ...]) -> Iterator[Problem]:
    ports = grpc_ports(config)
    taken = {each.listens.port + i for each in listeners for i in range(config.shards)}
    names = {each.name for each in listeners}
    for setting, listener in grpc_listeners(config).items():
        others = {*taken, config.http_port, *(ports[each] for each in ports if each != setting)}
        if ports[setting] > 0 and ports[setting] in others:
            yield Problem(
                f"{setting}: {ports[setting]} is the port of another door; choose another"
            )
        if listener.name in names:
            yield Problem(
                f"listeners: {listener.name} is the name of the door of {setting}; choose another"
            )
        for rule in _RULES_OF_GRPC:
            yield from map(Problem, rule(config, listener))
    if config.grpc_advertise and not _has_port(config.grpc_advertise):
        yield Problem(f"grpc.advertise: {config.grpc_advertise!r} is not host:port")
    if ports and config.grpc_host in EVERYWHERE and not config.grpc_advertise:
        yield Problem(
            "grpc.advertise: grpc.host is every address, so clients must be told one, host:port"
        )


def _needs_what_grpc_has(config: Config, listener: Listener) -> Iterator[str]:
    """Settings of TLS that grpcio does not know are refused, not passed over."""
    if not listener.protocol.has_tls:
        return
    versions = str(listener.setting(config, "ssl.enabled.protocols"))
    if {each.strip() for each in versions.split(",")} != TLS_VERSIONS:
        yield (
            f"ssl.enabled.protocols ({listener.name}): gRPC speaks TLSv1.2 and TLSv1.3, and "
            "neither can be turned off"
        )
    if listener.client_auth(config) == "requested":
        yield (
            f"ssl.client.auth ({listener.name}): gRPC asks for certificates that are required, or "
            "for none"
        )
    if listener.setting(config, "ssl.key.password"):
        yield (
            f"ssl.key.password ({listener.name}): gRPC takes no key with a password; give it one "
            f"without, by listener.name.{listener.name.lower()}.ssl.keystore.location"
        )


def _needs_tokens_of_grpc(config: Config, listener: Listener) -> Iterator[str]:
    if takes_tokens_by_grpc(config, listener):
        yield from _problems_of_tokens(config, listener)


def takes_tokens_by_grpc(config: Config, listener: Listener) -> bool:
    """Whether users may log in to a service with tokens: the keys of their issuer are known."""
    return listener.protocol.has_sasl and bool(listener.setting(config, _KEYS, OAUTHBEARER))


def _has_port(address: str) -> bool:
    try:
        return host_and_port(address)[1] > 0
    except ValueError:
        return False


def takes_tokens_by_http(config: Config) -> bool:
    """Whether users may log in to HTTP with tokens: the keys of their issuer are known."""
    http = http_listener(config)
    has_rules = bool(config.authorizer_class_name)
    return has_rules and http is not None and bool(http.setting(config, _KEYS, OAUTHBEARER))


def _needs_flags(config: Config, listener: Listener) -> Iterator[str]:
    """Beyond loopback: each flag accepts what its name says. PLAINTEXT knows nobody by name, so
    that `allow.plaintext` says all there is to say of it."""
    name, protocol, (host, _), _ = listener
    if is_loopback(host):
        return
    if not (protocol.has_tls or config.allow_plaintext):
        yield (
            f"listeners: {name} would be reached from other hosts at {host} without encryption; "
            "map it to SASL_SSL (docs/logins.md), listen on 127.0.0.1, or accept that with "
            "allow.plaintext=true"
        )
    if protocol is not Protocol.PLAINTEXT and not config.allow_anonymous:
        lacks = []
        if not identifies_peers(config, listener):
            lacks.append("logins (SASL_SSL, or ssl.client.auth=required)")
        if not config.authorizer_class_name:
            lacks.append("an authorizer (authorizer.class.name)")
        if lacks:
            yield (
                f"listeners: {name} would be reached from other hosts at {host} without "
                f"{' and '.join(lacks)}; set that, listen on 127.0.0.1, or accept it with "
                "allow.anonymous=true"
            )


def _needs_mechanisms(config: Config, listener: Listener) -> Iterator[str]:
    if listener.protocol.has_sasl:
        try:
            enabled = enabled_mechanisms(listener.setting(config, "sasl.enabled.mechanisms"))
        except ValueError as reason:
            yield f"sasl.enabled.mechanisms ({listener.name}): {reason}"
        else:
            if OAUTHBEARER in enabled:
                yield from _problems_of_tokens(config, listener)


def _problems_of_tokens(config: Config, listener: Listener) -> Iterator[str]:
    name, begin = listener.name, "sasl.oauthbearer."
    for suffix, what in _NEEDED_BY_TOKENS.items():
        if not str(listener.setting(config, begin + suffix, OAUTHBEARER)).strip(" ,"):
            yield f"{begin}{suffix} ({name}): OAUTHBEARER needs {what}"
    url = str(listener.setting(config, f"{begin}jwks.endpoint.url", OAUTHBEARER))
    if url and not path_of_file_url(url):
        yield (
            f"{begin}jwks.endpoint.url ({name}): only files are read; fetch the issuer's keys into "
            "one from time to time, and give it as file:///path"
        )


def _needs_keys(config: Config, listener: Listener) -> Iterator[str]:
    if not listener.protocol.has_tls:
        return

    def value(name: str) -> str:
        return str(listener.setting(config, name))

    has_key, has_store = value("ssl.keystore.key"), value("ssl.keystore.location")
    if not (has_key or has_store):
        yield (
            f"ssl.keystore.location ({listener.name}): TLS needs a key and a certificate; `smq "
            "certs` makes some for a test"
        )
    if has_key and has_store:
        yield f"ssl.keystore.key ({listener.name}): give it, or ssl.keystore.location, not both"
    if bool(has_key) != bool(value("ssl.keystore.certificate.chain")):
        yield (
            f"ssl.keystore.key ({listener.name}): it and ssl.keystore.certificate.chain are given "
            "together"
        )
    trusts = value("ssl.truststore.location") or value("ssl.truststore.certificates")
    if listener.client_auth(config) != "none" and not trusts:
        yield (
            f"ssl.truststore.location ({listener.name}): clients' certificates are checked with "
            "the authorities in it"
        )
    yield from _problems_of_tls(listener.name, value)


def _problems_of_tls(name: str, value: Callable[[str], str]) -> Iterator[str]:
    for kind in ("keystore", "truststore"):
        if value(f"ssl.{kind}.type") == "JKS":
            location = value(f"ssl.{kind}.location") or "store.jks"
            yield f"ssl.{kind}.type ({name}): {only_java_reads(location)}"
    versions = {each.strip() for each in value("ssl.enabled.protocols").split(",")}
    if not versions <= TLS_VERSIONS:
        wrong = ", ".join(sorted(versions - TLS_VERSIONS))
        yield f"ssl.enabled.protocols ({name}): {wrong} is none of TLSv1.2 and TLSv1.3"
    try:
        MappingRules(value("ssl.principal.mapping.rules"))
    except ValueError as reason:
        yield f"ssl.principal.mapping.rules ({name}): {reason}"


def only_java_reads(store: str) -> str:
    """Why a JKS store is refused."""
    return (
        "only Java reads JKS; make PKCS12 of it with `keytool -importkeystore -srckeystore "
        f"{store} -destkeystore store.p12 -deststoretype PKCS12`"
    )


def pem_text(data: bytes) -> str:
    """Certificates of PEM as OpenSSL takes them, without the letters that only comments have."""
    return data.decode("ascii", "ignore")


def keys_refused(setting: str, place: str, reason: Exception) -> str:
    """The sentence about a key store that OpenSSL refuses: its own words name no file."""
    return (
        f"{setting}: the key and the certificates cannot be used: {reason}; {place} should hold a "
        "whole private key, which ssl.key.password opens if it is encrypted, and its certificates"
    )


_KEYS = "sasl.oauthbearer.jwks.endpoint.url"
_NEEDED_BY_TOKENS = {
    "jwks.endpoint.url": "the file with the keys of the tokens' issuer, as file:///path",
    "expected.audience": "a name that tokens for this broker have in `aud`; without it those for "
    "others would open it",
    "expected.issuer": "the issuer, as tokens have it in `iss`",
    "sub.claim.name": "the claim that names the user; usually it is sub",
}
_RULES: tuple[Callable[[Config, Listener], Iterator[str]], ...] = (
    _needs_flags,
    _needs_mechanisms,
    _needs_keys,
)
_RULES_OF_GRPC: tuple[Callable[[Config, Listener], Iterator[str]], ...] = (
    _needs_flags,
    _needs_tokens_of_grpc,
    _needs_keys,
    _needs_what_grpc_has,
)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches an address. Of names only localhost counts: others may mean
    any address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def identifies_peers(config: Config, listener: Listener) -> bool:
    """Whether everybody on a listener is known by name."""
    has_certificates = listener.client_auth(config) == "required"
    return listener.protocol.has_sasl or (listener.protocol is Protocol.SSL and has_certificates)
