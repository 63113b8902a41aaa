"""Users' SCRAM credentials and access rules in the store."""

from collections.abc import Iterable
from pathlib import Path
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
from smq.security.published import UserCredential
from smq.store.database import Database


def forget_users(path: Path) -> None:
    """Delete every credential and rule from a store that nobody serves. Raises StoreError."""
    database = Database.open(path)
    for table in ("scram_credentials", "acls"):
        database.change(f"DELETE FROM {table}")  # noqa: S608
    database.commit()
    database.close()


class Stored(NamedTuple):
    """The users and rules of a store."""

    credentials: list[UserCredential]
    rules: list[AclBinding]


def stored(path: Path) -> Stored:
    """The users and rules of the store at `path`, as last committed. Raises StoreError."""
    database = Database.open_read_only(path)
    database.check()
    tables = AccessTables(database)
    found = Stored(tables.credentials(), tables.rules())
    database.close()
    return found


class AccessTables:
    """The tables `scram_credentials` and `acls`. Changes are durable with the next commit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def credentials(self) -> list[UserCredential]:
        """Every credential, by user."""
        return [
            UserCredential(user, ScramMechanism(mechanism), ScramCredential(*keys))
            for user, mechanism, *keys in self._database.rows(
                "SELECT user, mechanism, salt, stored_key, server_key, iterations "
                "FROM scram_credentials ORDER BY user, mechanism"
            )
        ]

    def put_credential(self, entry: UserCredential) -> None:
        """Give a user this credential, in place of the one of its mechanism."""
        self._database.change(
            "INSERT OR REPLACE INTO scram_credentials VALUES (?, ?, ?, ?, ?, ?)",
            (entry.user, entry.mechanism.value, *entry.credential),
        )

    def delete_credential(self, user: str, mechanism: ScramMechanism) -> None:
        """Delete a user's credential of a mechanism."""
        self._database.change(
            "DELETE FROM scram_credentials WHERE user = ? AND mechanism = ?",
            (user, mechanism.value),
        )

    def rules(self) -> list[AclBinding]:
        """Every access rule."""
        return [
            AclBinding(
                ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type)),
                AccessControlEntry(principal, host, Operation(operation), Permission(permission)),
            )
            for (
                resource_type,
                name,
                pattern_type,
                principal,
                host,
                operation,
                permission,
            ) in self._database.rows(
                "SELECT resource_type, name, pattern_type, principal, host, operation, permission "
                "FROM acls ORDER BY resource_type, name, pattern_type, principal"
            )
        ]

    def add_rules(self, rules: Iterable[AclBinding]) -> None:
        """Add rules that are not there."""
        self._database.change_many(
            "INSERT INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*pattern, *entry) for pattern, entry in rules],
        )

    def delete_rules(self, rules: Iterable[AclBinding]) -> None:
        """Delete rules."""
        self._database.change_many(
            "DELETE FROM acls WHERE resource_type = ? AND name = ? AND pattern_type = ? "
            "AND principal = ? AND host = ? AND operation = ? AND permission = ?",
            [(*pattern, *entry) for pattern, entry in rules],
        )
