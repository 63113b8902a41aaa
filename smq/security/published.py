"""Users and access rules as the coordinator publishes them to our other processes: a line each.

    ["user", name, mechanism, salt, stored key, server key, iterations]     keys in hexadecimal
    ["rule", resource type, name, pattern type, principal, host, operation, permission]

A line is JSON, so that it has no line break. What did not change keeps its line: who follows them
compares lines, and reads only new ones.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

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

_TYPES, _PATTERNS = {int(each): each for each in ResourceType}, {int(e): e for e in PatternType}
_OPERATIONS, _PERMISSIONS = {int(each): each for each in Operation}, {int(e): e for e in Permission}


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


def entries_of(lines: Iterable[str]) -> list[UserCredential | AclBinding]:
    """The credentials and rules of lines: a thousand take a few milliseconds."""
    # One document is read faster than many, and a kind is found faster than made from its code.
    said = json.loads(f"[{','.join(lines)}]")
    return [_rule(*each[1:]) if each[0] == "rule" else _credential(*each) for each in said]


def _credential(kind: str, user: str, mechanism: str, *said: Any) -> UserCredential:  # noqa: ANN401
    assert kind == "user"
    *keys, iterations = said
    salt, stored_key, server_key = map(bytes.fromhex, keys)
    credential = ScramCredential(salt, stored_key, server_key, iterations)
    return UserCredential(user, ScramMechanism(mechanism), credential)


def _rule(  # noqa: PLR0913, PLR0917  (a line's parts)
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    pattern = ResourcePattern(_TYPES[resource_type], name, _PATTERNS[pattern_type])
    entry = AccessControlEntry(principal, host, _OPERATIONS[operation], _PERMISSIONS[permission])
    return AclBinding(pattern, entry)


def encode(lines: Iterable[str]) -> bytes:
    """The bytes to publish."""
    return "\n".join(lines).encode()


def decode(published: bytes) -> list[str]:
    """The lines that `encode` was given."""
    return published.decode().split("\n") if published else []
