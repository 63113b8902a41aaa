"""Users and access rules as the coordinator publishes them to our other processes: a line each.

    ["user", name, mechanism, salt, stored key, server key, iterations]     keys in hexadecimal
    ["rule", resource type, name, pattern type, principal, host, operation, permission]

A line is JSON, so that it has no line break. What did not change keeps its line: who follows them
compares lines, and reads only new ones.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.credentials import ScramCredential, ScramMechanism


class UserCredential(NamedTuple):
    """A user's credential of a mechanism."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential


def line_of(entry: UserCredential | AclBinding) -> str:
    """The line of a credential or rule."""
    if isinstance(entry, AclBinding):
        return json.dumps(["rule", *entry.pattern, *entry.entry])
    salt, stored_key, server_key, iterations = entry.credential
    keys = salt.hex(), stored_key.hex(), server_key.hex()
    return json.dumps(["user", entry.user, entry.mechanism.value, *keys, iterations])


def entry_of(line: str) -> UserCredential | AclBinding:
    """The credential or rule of a line."""
    kind, *said = json.loads(line)
    if kind == "user":
        user, mechanism, *keys, iterations = said
        salt, stored_key, server_key = map(bytes.fromhex, keys)
        credential = ScramCredential(salt, stored_key, server_key, iterations)
        return UserCredential(user, ScramMechanism(mechanism), credential)
    assert kind == "rule"
    resource_type, name, pattern_type, principal, host, operation, permission = said
    return AclBinding(
        ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type)),
        AccessControlEntry(principal, host, Operation(operation), Permission(permission)),
    )


def encode(lines: Iterable[str]) -> bytes:
    """The bytes to publish."""
    return "\n".join(lines).encode()


def decode(published: bytes) -> list[str]:
    """The lines that `encode` was given."""
    return published.decode().split("\n") if published else []
