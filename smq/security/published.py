"""Users and access rules as the coordinator publishes them to our other processes: a line each,
behind one that tells what the last publications have changed.

    [[[lines that went], [lines that came]], ...]     by publication, the last one's last; or []
    ["user", name, mechanism, salt, stored key, server key, iterations]     keys in hexadecimal
    ["rule", resource type, name, pattern type, principal, host, operation, permission]

A line is JSON, so that it has no line break. What did not change keeps its line. Who has followed
until a few publications ago reads only the changes; who has not compares lines, and reads new ones.
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

ACCESS_BYTES_MAX = 16 * 1024 * 1024
"""Of all lines: a hundred thousand rules. Beyond, none is added."""

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


class Change(NamedTuple):
    """The lines that a publication has removed and added."""

    gone: list[str]
    come: list[str]


def line_of_change(change: Change) -> str:
    """What a publication has changed, as the next ones tell it."""
    return json.dumps(change)


def encode(lines: Iterable[str], changes: Iterable[str] = ()) -> bytes:
    """The bytes to publish, b"" if there is nothing; `changes` are by line_of_change."""
    text = "\n".join([f"[{','.join(changes)}]", *lines])
    return b"" if text == "[]" else text.encode()


def decode(published: bytes) -> list[str]:
    """The lines that `encode` was given."""
    return published.decode().split("\n")[1:]


def changes_of(published: bytes, count: int) -> list[Change] | None:
    """What the last `count` publications have changed, the first one first; None: it is not
    told."""
    end = published.find(b"\n")  # The lines behind it may be many: they are not copied.
    changes = json.loads((published if end < 0 else published[:end]) or b"[]")
    if count > len(changes):
        return None
    return [Change(*each) for each in changes[len(changes) - count :]]
