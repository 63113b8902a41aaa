"""A broker that asks who you are: a writer may write one topic, and a reader read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from smq.client.kafka.access_rules import add_rules
from smq.client.kafka.cluster import Cluster
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.testing.smq_broker import SmqBroker
from tests.broker.users import add_users

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@contextmanager
def guarded_broker(directory: Path) -> Iterator[SmqBroker]:
    """The broker. Who does not log in is a super user."""
    with SmqBroker(directory, SETTINGS, listeners={"ASKS": "SASL_PLAINTEXT"}) as broker:
        add_users(broker.bootstrap, {"writer": "w", "reader": "r"})
        yield broker


def new_topic(broker: SmqBroker) -> str:
    """A topic that the writer may write, and the reader read, also in a group of its name."""
    name = uuid4().hex[:8]
    with broker.connect() as client:
        client.create_topic(name, 2)
    allow(broker, "writer", ResourceType.TOPIC, name, Operation.WRITE)
    allow(broker, "reader", ResourceType.TOPIC, name, Operation.READ)
    allow(broker, "reader", ResourceType.GROUP, name, Operation.READ)
    return name


def allow(  # noqa: PLR0913  (what a rule says)
    broker: SmqBroker,
    user: str,
    kind: ResourceType,
    name: str,
    what: Operation,
    *,
    host: str = "*",
) -> None:
    pattern = ResourcePattern(kind, name, PatternType.LITERAL)
    entry = AccessControlEntry(f"User:{user}", host, what, Permission.ALLOW)
    with Cluster(broker.bootstrap) as cluster:
        add_rules(cluster, [AclBinding(pattern, entry)])


def address_of(broker: SmqBroker) -> str:
    """Where it asks who you are."""
    return f"127.0.0.1:{broker.port_of('ASKS')}"


def config_of(user: str) -> dict[str, str]:
    """The properties of a user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": user[0],
    }
