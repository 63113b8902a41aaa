"""SeaweedMQ's services behind TLS, logins and access rules, as each user calls them."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.kafka.access_rules import add_rules, delete_rules
from smq.client.kafka.cluster import Cluster
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import OPTIONS, SETTINGS, Doors
from tests.broker.users import add_users
from tests.security.issuer import AUDIENCE, ISSUER, write_jwks

PROTOCOLS = "listener.security.protocol.map"
ROOT = "root"  # A super user.
Metadata = tuple[tuple[str, str], ...]


def make_certificates(directory: Path, *clients: str) -> Path:
    for name in clients or ("client",):
        assert CliRunner().invoke(app, ["certs", str(directory), "--client", name]).exit_code == 0
    return directory


def settings_of(certs: Path, protocol: str = "SASL_SSL") -> dict[str, str]:
    """Of a broker whose two services speak this; Kafka's listener lets everybody do everything."""
    return SETTINGS | {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{ROOT}",
        PROTOCOLS: f"PLAINTEXT:PLAINTEXT,GRPC:{protocol},AGENT:{protocol}",
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
        "sasl.oauthbearer.jwks.endpoint.url": write_jwks(certs / "jwks.json", "rsa"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }


def basic(user: str, password: str | None = None) -> Metadata:
    """A login by password, which is the name backwards."""
    said = f"{user}:{user[::-1] if password is None else password}"
    return (("authorization", f"Basic {b64encode(said.encode()).decode()}"),)


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


class GuardedDoors:
    """Both services; `by` gives them as somebody calls them."""

    def __init__(self, broker: SmqBroker, doors: Doors) -> None:
        self.smq, self.doors = broker, doors

    def by(self, metadata: Metadata) -> Doors:
        found = object.__new__(Doors)
        found.smq = self.smq
        found.broker, found.agent = (
            _with(each, metadata) for each in (self.doors.broker, self.doors.agent)
        )
        return found

    def user(self, name: str) -> Doors:
        return self.by(basic(name))

    def add_users(self, *names: str) -> None:
        add_users(self.smq.bootstrap, {name: name[::-1] for name in names})

    def allow(self, user: str, what: Operation, kind: ResourceType, name: str = "") -> None:
        with Cluster(self.smq.bootstrap) as cluster:
            add_rules(cluster, [rule(user, what, kind, name)])

    def allow_no_more(self, user: str, what: Operation, kind: ResourceType, name: str) -> None:
        with Cluster(self.smq.bootstrap) as cluster:
            pattern, entry = rule(user, what, kind, name)
            wanted = AclBindingFilter(
                ResourcePatternFilter(*pattern), AccessControlEntryFilter(*entry)
            )
            assert delete_rules(cluster, wanted)


def rule(user: str, what: Operation, kind: ResourceType, name: str) -> AclBinding:
    named = CLUSTER_NAME if kind is ResourceType.CLUSTER else name
    pattern = ResourcePattern(kind, named, PatternType.LITERAL)
    return AclBinding(pattern, AccessControlEntry(f"User:{user}", "*", what, Permission.ALLOW))


def _with(stubs: SimpleNamespace, metadata: Metadata) -> SimpleNamespace:
    def calling(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(request: Any, **options: Any) -> Any:
            also = options.pop("metadata", ())
            return call(request, metadata=(*metadata, *also), **options)

        return called

    return SimpleNamespace(**{name: calling(each) for name, each in vars(stubs).items()})


@contextmanager
def opened_in_tls(broker: SmqBroker, certs: Path, client: str = "") -> Iterator[GuardedDoors]:
    """The services of a running broker, called with a client's certificate or without."""
    pem = (certs / f"{client}.pem").read_bytes() if client else None
    keys = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes(), pem, pem)
    status = broker.status()
    with (
        grpc.secure_channel(status.grpc, keys, options=OPTIONS) as first,
        grpc.secure_channel(status.agent, keys, options=OPTIONS) as second,
    ):
        yield GuardedDoors(broker, Doors(broker, (first, second)))
