"""Users and rules for tests of HTTP: each user's password is the name backwards."""

from base64 import b64encode
from typing import Any

from smq.front.logins import HttpLogins, Passwords
from smq.front.rights import HttpRights
from smq.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.audit import OFF, Audit
from smq.security.authorizer import Authorizer
from smq.security.credentials import (
    Profiles,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted,
)
from smq.security.decoys import Decoys
from smq.security.plain import PlainServer
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.security.tokens import Tokens

SUPER = "root"
_SHA = ScramMechanism.SCRAM_SHA_256


class Users:
    """Credentials that a test may change."""

    def __init__(self, *names: str) -> None:
        self._known: dict[str, ScramCredential] = {}
        self.version = 0
        for name in names:
            self.set_password(name, name[::-1])

    def set_password(self, user: str, password: str, iterations: int = 16) -> None:
        self.version += 1
        salt = user.encode()
        key = salted(_SHA, password, salt, iterations)
        self._known[user] = credential_of(_SHA, key, salt, iterations)

    def profiles(self) -> Profiles:
        return {}

    def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._known.get(user) if mechanism is _SHA else None


def logins_for(
    users: Users,
    *rules: AclBinding,
    tokens: Tokens | None = None,
    is_open: bool = False,
    audit: Audit = OFF,
) -> HttpLogins:
    authorizer = Authorizer(Rules(rules), frozenset({Principal("User", SUPER)}))

    def rights_of(peer: Peer) -> Rights:
        return Rights(authorizer, peer, audit)

    def begin() -> PlainServer:
        return PlainServer(users, Decoys(b"secret"))

    passwords = Passwords(begin, lambda: users.version)
    return HttpLogins(passwords, rights_of, 0.0, tokens=tokens, is_open=is_open, audit=audit)


def rights_for(*rules: AclBinding, token: str = "", audit: Audit = OFF) -> HttpRights:
    """The rights of alice, bob and the super user root by some rules."""
    return HttpRights(
        logins_for(Users("alice", "bob", SUPER), *rules, audit=audit),
        lambda: [token] if token else None,
    )


def may(
    user: str,
    operation: Operation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    how: PatternType = PatternType.LITERAL,
) -> AclBinding:
    entry = AccessControlEntry(f"User:{user}", "*", operation, Permission.ALLOW)
    return AclBinding(ResourcePattern(kind, name, how), entry)


def may_with_cluster(user: str, operation: Operation) -> AclBinding:
    return may(user, operation, CLUSTER_NAME, ResourceType.CLUSTER)


def as_user(name: str, password: str | None = None) -> dict[str, Any]:
    """The headers of a user's request that may change something."""
    words = f"{name}:{name[::-1] if password is None else password}".encode()
    return {"authorization": f"Basic {b64encode(words).decode()}", "x-smq-token": "mine"}
