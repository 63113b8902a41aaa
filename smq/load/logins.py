"""How the load's clients reach a broker and log in: as --command-config and the environment say.

Each process reads that for itself, so no secret is in arguments or on stdin. librdkafka takes the
same properties under names of its own.
"""

from collections.abc import Iterator
from pathlib import Path

from smq.client.kafka.cluster import Cluster
from smq.client.locate import Way, cluster_at, way_to
from smq.client.secure.security import Security, TlsFiles, security_of
from smq.client.secure.tls_context import is_pem, trusted_by


class NoWay(Exception):
    """A load's client cannot reach the broker so; a sentence."""


def way_of(bootstrap: str) -> Way:
    """The way of SMQ's own clients. Raises NoWay, BrokerUnavailable."""
    try:
        return way_to(bootstrap, security_of(None))
    except ValueError as reason:
        raise NoWay(str(reason)) from reason


def way_of_librdkafka(bootstrap: str) -> Way:
    """The way of librdkafka's clients. Raises NoWay, BrokerUnavailable."""
    way = way_of(bootstrap)
    if way.security.socket_owner is not None:
        raise NoWay(
            f"librdkafka cannot reach the unix socket of {bootstrap}; give the broker's address "
            "with --bootstrap, or --set client=sdk"
        )
    return way


def cluster_of(bootstrap: str) -> Cluster:
    """The broker, asked as the load's clients are. Raises NoWay, BrokerError."""
    try:
        return cluster_at(bootstrap, security_of(None))
    except ValueError as reason:
        raise NoWay(str(reason)) from reason


def librdkafka_settings(security: Security) -> dict[str, str]:
    """The same login in librdkafka's settings. Raises NoWay."""
    if security.is_plain:
        return {}
    secured = "SSL" if security.tls is not None else "PLAINTEXT"
    if not security.mechanism:
        settings = {"security.protocol": secured}
    elif security.tokens is not None:
        raise NoWay("librdkafka's loads log in with passwords alone; tokens need --set client=sdk")
    else:
        settings = {
            "security.protocol": f"SASL_{secured}",
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.user,
            "sasl.password": security.password,
        }
    if security.tls is None:
        return settings
    try:
        return settings | dict(_of_tls(security.tls))
    except ValueError as reason:
        raise NoWay(str(reason)) from reason


def _of_tls(files: TlsFiles) -> Iterator[tuple[str, str]]:
    if not files.checks_names:
        yield "ssl.endpoint.identification.algorithm", "none"
    if files["ssl.enabled.protocols"]:
        raise NoWay(
            "librdkafka chooses the version of TLS itself: leave ssl.enabled.protocols out, or "
            "--set client=sdk"
        )
    store = files["ssl.truststore.location"]
    if store and not files["ssl.truststore.certificates"] and is_pem(Path(store)):
        yield "ssl.ca.location", store
    elif trusted := trusted_by(files):
        yield "ssl.ca.pem", trusted.decode("ascii")
    if password := files["ssl.key.password"]:
        yield "ssl.key.password", password
    yield from _of_key(files)


def _of_key(files: TlsFiles) -> Iterator[tuple[str, str]]:
    store = files["ssl.keystore.location"]
    if key := files["ssl.keystore.key"]:
        yield "ssl.key.pem", key
        yield "ssl.certificate.pem", files["ssl.keystore.certificate.chain"]
    elif key := files["ssl.key.location"]:
        yield "ssl.key.location", key
        yield "ssl.certificate.location", files["ssl.certificate.location"]
    elif store and is_pem(Path(store)):  # Both are in it; each reader takes its own.
        yield "ssl.key.location", store
        yield "ssl.certificate.location", store
    elif store:
        yield "ssl.keystore.location", store
        yield "ssl.keystore.password", files["ssl.keystore.password"]
