"""How a client proves who it is, and has the broker prove who it is: the properties of Kafka's
clients, and librdkafka's names for them.

    security.protocol        PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
    sasl.mechanism           PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    sasl.jaas.config         with the user and the password; or sasl.username and sasl.password
    sasl.oauthbearer.…       where tokens come from; or the function oauth_cb of a program
    ssl.truststore.…         the authorities that are trusted; without them those of the system
    ssl.keystore.…           the client's own key and certificates

Secrets appear in no text that these classes make of themselves.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from smq.client.arguments import text_by_name
from smq.client.secure.jaas import OAUTH_MODULE, PLAIN_MODULE, login_of, options_of
from smq.client.secure.logins import MECHANISMS, OAUTHBEARER, PLAIN
from smq.client.secure.properties import read_properties, variables
from smq.client.secure.tokens import (
    Callback,
    TokenEndpoint,
    TokenFile,
    TokenSource,
    why_no_endpoint,
)
from smq.model.urls import path_of_file_url
from smq.security.listeners import Protocol

PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.")
SERVERS = "bootstrap.servers"  # No security; a mapping may have it, for it may be a whole file.
PROPERTIES_VARIABLE = "SMQ_CLIENT_PROPERTIES"  # Names a file.

_STORES = tuple(
    f"ssl.{kind}.{name}"
    for kind, own in (("keystore", ("key", "certificate.chain")), ("truststore", ("certificates",)))
    for name in ("location", "password", "type", *own)
)
OAUTH_CALLBACK = "oauth_cb"  # A function, where all others are texts.
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  (its name)
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105  (its name)
_SCOPE = "sasl.oauthbearer.scope"
_SAME: Final = {  # librdkafka's names.
    "sasl.oauthbearer.client.id": _CLIENT_ID,
    "sasl.oauthbearer.client.secret": _CLIENT_SECRET,
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
}
_TAKEN = {
    "security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password",
    "ssl.key.password", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.key.location", "ssl.certificate.location", "enable.ssl.certificate.verification",
    _TOKEN_URL, _CLIENT_ID, _CLIENT_SECRET, _SCOPE, "sasl.oauthbearer.config",
    "sasl.oauthbearer.method", "https.ca.location",
    *_STORES,
}  # fmt: skip
_KEY_TEXTS = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
_INSTEAD = {  # Who names the one means it, and not what the environment has of the others.
    "sasl.username": ("sasl.jaas.config",),
    "sasl.password": ("sasl.jaas.config",),
    "ssl.key.location": _KEY_TEXTS,
    "ssl.keystore.location": (*_KEY_TEXTS, "ssl.key.location", "ssl.certificate.location"),
    "ssl.truststore.location": ("ssl.truststore.certificates",),
    _CLIENT_ID: ("sasl.jaas.config",),
}
_OF_JAVA = (  # They choose parts of Java, and no behaviour.
    "ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation", "sasl.kerberos.", "sasl.login.refresh.",
    "sasl.login.retry.", "sasl.login.connect.", "sasl.login.read.", "security.providers",
    "sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Keys and authorities, as properties name them.

    values        by property; those that are not set are empty
    checks_names  whether the broker's certificate must be for the host that was asked for
    """

    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    checks_names: bool = True

    def __getitem__(self, name: str) -> str:
        return dict(self.values).get(name, "")


@dataclass(frozen=True, slots=True)
class Security:
    """How connections are made: `tls` is None for plain bytes, `mechanism` "" without a login.

    tokens         where those of OAUTHBEARER come from; None: it is another mechanism
    socket_owner   whose brokers may be reached by unix sockets, beside our own and root's; None:
                   no address is a socket's path, whatever a broker says
    """

    tls: TlsFiles | None = None
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    socket_owner: int | None = None
    tokens: TokenSource | None = field(default=None, repr=False, hash=False)

    @property
    def is_plain(self) -> bool:
        """Whether a connection needs nothing more than a socket."""
        return self.tls is None and not self.mechanism


PLAINTEXT = Security()


def security_of(
    given: Mapping[str, Any] | str | os.PathLike[str] | None,
    environment: Mapping[str, str] = os.environ,
) -> Security:
    """What properties, or a file of them, say; those that are not given come from the environment.

    Names that have nothing to do with security are ignored in files and, but for bootstrap.servers,
    refused elsewhere. Raises TypeError, ValueError with a sentence that tells no secret.
    """
    if given is None and PROPERTIES_VARIABLE in environment:
        given = environment[PROPERTIES_VARIABLE]
    set_outside = variables(environment)
    set_outside.pop("properties", None)
    outside, chosen = _named(set_outside, of_file=False), dict[str, str]()
    callback: Any = None
    if isinstance(given, str | os.PathLike):
        chosen = _named(read_properties(given), of_file=True)
    elif given is not None:
        if not isinstance(given, Mapping):
            raise TypeError(
                f"config is a mapping of properties or a file's path, not {type(given).__name__}"
            )
        callback = given.get(OAUTH_CALLBACK)
        others = {SERVERS, OAUTH_CALLBACK}
        chosen = _named({k: v for k, v in given.items() if k not in others}, of_file=False)
    for name in chosen:
        for other in _INSTEAD.get(name, ()):
            outside.pop(other, None)
    if callback is not None and not callable(callback):
        raise TypeError(f"{OAUTH_CALLBACK} is a function, not {type(callback).__name__}")
    return _security(outside | chosen, callback)


def check_servers(
    address: str | os.PathLike[str], given: Mapping[str, str] | str | os.PathLike[str] | None
) -> None:
    """Raises ValueError if a mapping of properties names other brokers than the address."""
    named = given.get(SERVERS) if isinstance(given, Mapping) else None
    if named is not None and named != address:
        raise ValueError(f"config has {SERVERS} {named!r}, and the address is {str(address)!r}")


def _named(given: Mapping[str, str], *, of_file: bool) -> dict[str, str]:
    """The properties of security by Kafka's names."""
    named = {}
    for name, value in text_by_name("config", given, are_secret=True).items():
        kafka_name = _SAME.get(name, name)
        if kafka_name in _TAKEN:
            named[kafka_name] = value
        elif not name.startswith(_OF_JAVA) and (name.startswith(PREFIXES) or not of_file):
            shown = re.split(r"[=:\s]", name)[0]  # A value may follow, put there by mistake.
            raise ValueError(f"{shown} is no property that SMQ's clients know")
    return named


def _security(properties: Mapping[str, str], callback: Any) -> Security:  # noqa: ANN401  (a function or None)
    if not properties:
        return PLAINTEXT
    name = properties.get("security.protocol", "PLAINTEXT").upper()
    if name not in Protocol.__members__:
        known = ", ".join(Protocol.__members__)
        raise ValueError(f"security.protocol is {name}; it should be one of {known}")
    protocol = Protocol[name]
    tls = _tls(properties) if protocol.has_tls else None
    if not protocol.has_sasl:
        return Security(tls)
    if properties.get("sasl.mechanism") == OAUTHBEARER:
        tokens = _tokens(properties, callback)
        return Security(tls, OAUTHBEARER, tokens=tokens)
    mechanism, user, password = _login(properties)
    return Security(tls, mechanism, user, password)


def _tls(properties: Mapping[str, str]) -> TlsFiles:
    if properties.get("enable.ssl.certificate.verification", "true") != "true":
        raise ValueError(
            "enable.ssl.certificate.verification can only be true: without it anybody could be "
            "the broker; name its authority as ssl.ca.location"
        )
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in {"https", "", "none"}:
        raise ValueError(
            f"ssl.endpoint.identification.algorithm is {algorithm!r}; it should be https, or "
            "empty for a broker whose certificate does not name its host"
        )
    values = ((name, value) for name, value in properties.items() if name.startswith("ssl."))
    return TlsFiles(tuple(sorted(values)), checks_names=algorithm == "https")


def _login(properties: Mapping[str, str]) -> tuple[str, str, str]:
    """Mechanism, user and password."""
    mechanism = properties.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        said = f"is {mechanism}" if mechanism else "is not set"
        known = ", ".join((*MECHANISMS, OAUTHBEARER))
        raise ValueError(f"sasl.mechanism {said}; it should be one of {known}")
    if "sasl.jaas.config" in properties:
        module, user, password = login_of(properties["sasl.jaas.config"])
        if module == OAUTH_MODULE or (module == PLAIN_MODULE) != (mechanism == PLAIN):
            raise ValueError(f"sasl.jaas.config names {module}, which is not for {mechanism}")
        return mechanism, user, password
    user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
    if not user or not password:
        raise ValueError("a login needs sasl.jaas.config, or sasl.username and sasl.password")
    return mechanism, user, password


def _tokens(properties: Mapping[str, str], callback: Any) -> TokenSource:  # noqa: ANN401
    """Where tokens come from. What properties say stands before what the JAAS options do."""
    if callback is not None:
        return Callback(callback, properties.get("sasl.oauthbearer.config", ""))
    options = dict[str, str]()
    if "sasl.jaas.config" in properties:
        module, options = options_of(properties["sasl.jaas.config"])
        if module != OAUTH_MODULE:
            raise ValueError(f"sasl.jaas.config names {module}, which is not for {OAUTHBEARER}")
    url = properties.get(_TOKEN_URL, "")
    if path := path_of_file_url(url):
        return TokenFile(path)
    if not url:
        raise ValueError(
            f"{OAUTHBEARER} needs {_TOKEN_URL}, https:// or file:///, or {OAUTH_CALLBACK}"
        )
    if why := why_no_endpoint(url):
        raise ValueError(f"{_TOKEN_URL}: {why}")
    client_id = properties.get(_CLIENT_ID, options.get("clientId", ""))
    secret = properties.get(_CLIENT_SECRET, options.get("clientSecret", ""))
    if not client_id or not secret:
        raise ValueError(
            f"{_TOKEN_URL} needs {_CLIENT_ID} and {_CLIENT_SECRET}, or clientId and clientSecret "
            "in sasl.jaas.config"
        )
    scope = properties.get(_SCOPE, options.get("scope", ""))
    return TokenEndpoint(url, client_id, secret, scope, properties.get("https.ca.location", ""))
