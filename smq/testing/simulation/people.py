"""Who there is in a secured simulation, and what they may do at its start.

    User:ANONYMOUS    half of the clients, on the listener without logins: a super user
    User:worker       the other half, by rules that never change
    User:guest-<n>    one for each mechanism: their rights and passwords change
    User:unix/<uid>   a user of this host, by a unix socket: so do its rights
    User:teller       runs transactions: so does its right to write to their topics
    User:intruder     uses what is others' (intruder.py)
    User:admin        a super user, who changes all this

Everybody but the host's user has one credential. A password is never used again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from smq.client.secure import logins
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security import plain
from smq.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.credentials import ScramMechanism, credential_of, salted
from smq.security.published import UserCredential
from smq.store.store import Store

INSIDE, OUTSIDE = "INSIDE", "OUTSIDE"  # Listeners: without logins, and with.
UID = 3_000_001  # Nobody's on this machine, so that it is known by its number.
ITERATIONS = 4096
GUARDED = ("guarded-0", "guarded-1", "guarded-many")  # The last one has many partitions.
GUARDED_BY = "guarded-"  # Their prefix.
TELLERS_TOPICS = "transactions"  # A prefix.
_O = Operation


class Identity(NamedTuple):
    """Who a client is. `mechanism` is one of SASL; "": the unix socket tells."""

    name: str
    mechanism: str

    @property
    def principal(self) -> str:
        """As rules write it."""
        return f"User:{self.name}"

    @property
    def stored(self) -> ScramMechanism:
        """The mechanism of its credential, which PLAIN uses too."""
        is_256 = self.mechanism == ScramMechanism.SCRAM_SHA_256.sasl_name
        return ScramMechanism.SCRAM_SHA_256 if is_256 else ScramMechanism.SCRAM_SHA_512


ADMIN, WORKER, TELLER, INTRUDER = (
    Identity(name, "SCRAM-SHA-256") for name in ("admin", "worker", "teller", "intruder")
)
GUESTS = (
    Identity("guest-0", "SCRAM-SHA-256"),
    Identity("guest-1", "SCRAM-SHA-512"),
    Identity("guest-2", "PLAIN"),
)
HOSTS_USER = Identity(f"unix/{UID}", "")
ALL_GUESTS = (*GUESTS, HOSTS_USER)

SETTINGS = {
    "listeners": f"{INSIDE}://broker:9092,{OUTSIDE}://broker:9192",
    "listener_security_protocol_map": f"{INSIDE}:PLAINTEXT,{OUTSIDE}:SASL_PLAINTEXT",
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:ANONYMOUS;User:admin",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
}
LIFETIMES_MS = (0, 0, 1500, 4000)  # connections.max.reauth.ms; a login is renewed once a second.


def settings(chance: Random) -> dict[str, str | int]:
    """The settings of a secured broker, by their fields' names."""
    return {**SETTINGS, "connections_max_reauth_ms": chance.choice(LIFETIMES_MS)}


def identity_of(client: str, seed: int) -> Identity | None:
    """Who a client of a secured run is that may do everything; None: nobody asks."""
    if client.startswith("transactor"):
        return TELLER
    return Random(f"{seed} {client} logs in").choice((None, WORKER))  # noqa: S311


# --- rules ---------------------------------------------------------------------------------------


def rule(
    identity: Identity,
    operation: Operation,
    pattern: ResourcePattern,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    """A rule about somebody, from any host."""
    return AclBinding(
        pattern, AccessControlEntry(identity.principal, WILDCARD, operation, permission)
    )


def topic(name: str) -> ResourcePattern:
    """A topic."""
    return ResourcePattern(ResourceType.TOPIC, name)


def prefixed(name: str) -> ResourcePattern:
    """Topics whose names begin so."""
    return ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED)


TELLER_WRITES = rule(TELLER, _O.WRITE, prefixed(TELLERS_TOPICS))


def first_rules() -> list[AclBinding]:
    """The rules at the start of a run. Those of guests come and go."""
    everything = {
        ResourceType.TOPIC: WILDCARD,
        ResourceType.GROUP: WILDCARD,
        ResourceType.TRANSACTIONAL_ID: WILDCARD,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    tellers = {
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, WILDCARD): _O.WRITE,
        ResourcePattern(ResourceType.GROUP, WILDCARD): _O.READ,
        prefixed(TELLERS_TOPICS): _O.READ,
    }
    rules = [rule(WORKER, _O.ALL, ResourcePattern(kind, name)) for kind, name in everything.items()]
    rules += [rule(TELLER, operation, pattern) for pattern, operation in tellers.items()]
    rules += [rule(INTRUDER, each, topic(WILDCARD)) for each in (_O.READ, _O.WRITE)]
    return [*rules, TELLER_WRITES]


# --- passwords -----------------------------------------------------------------------------------

_salted_once = lru_cache(maxsize=4096)(salted)


@contextmanager
def cheap_passwords() -> Iterator[None]:
    """Within the block a password is hashed once a process: hashing takes milliseconds, and gives
    the same each time."""
    for module in (plain, logins):
        vars(module)["salted"] = _salted_once
    try:
        yield
    finally:
        for module in (plain, logins):
            vars(module)["salted"] = salted


def password_of(name: str, version: int) -> str:
    """A user's n-th password."""
    return f"{name}'s password {version}"


class Salted(NamedTuple):
    """A password as clients send it to be stored."""

    salt: bytes
    password: bytes


def salted_password(identity: Identity, version: int) -> Salted:
    """A user's n-th password, salted."""
    salt = f"{identity.name} salt {version}".encode()
    password = password_of(identity.name, version)
    return Salted(salt, _salted_once(identity.stored, password, salt, ITERATIONS))


def settle_in(path: Path) -> None:
    """Put the credentials and the first rules into a store."""
    store = Store.open(path)
    for each in (ADMIN, WORKER, TELLER, INTRUDER, *GUESTS):
        salt, password = salted_password(each, 0)
        credential = credential_of(each.stored, password, salt, ITERATIONS)
        store.access.put_credential(UserCredential(each.name, each.stored, credential))
    store.access.add_rules(first_rules())
    store.commit()
    store.close()
