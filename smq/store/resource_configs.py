"""Configs of resources other than topics: brokers, client metrics, groups and quotas.

A broker's name is its node id, or "" for all of them.
"""

from collections.abc import Mapping

from smq.store.config_changes import Changer, ConfigChanges
from smq.store.database import Database

Configs = Mapping[str, Mapping[str, str]]
"""The configs of resources of one type, by resource and name."""


class ResourceConfigs:
    """The table of configs. Each change is recorded with its author."""

    def __init__(self, database: Database, changes: ConfigChanges) -> None:
        self._database, self._changes = database, changes

    def all(self) -> dict[str, dict[str, dict[str, str]]]:
        """Every config, by type, resource and name."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for kind, resource, name, value in self._database.rows(
            "SELECT resource_type, resource, name, value FROM resource_configs"
        ):
            found.setdefault(kind, {}).setdefault(resource, {})[name] = value
        return found

    def replace(
        self,
        kind: str,
        resource: str,
        before: Mapping[str, str],
        after: Mapping[str, str],
        by: Changer,
    ) -> None:
        """Give a resource these configs in place of those before. Durable with the next commit."""
        self._database.change_many(
            "DELETE FROM resource_configs WHERE resource_type = ? AND resource = ? AND name = ?",
            [(kind, resource, name) for name in before if name not in after],
        )
        self._database.change_many(
            "INSERT OR REPLACE INTO resource_configs VALUES (?, ?, ?, ?)",
            [
                (kind, resource, name, value)
                for name, value in after.items()
                if before.get(name) != value
            ],
        )
        self._changes.note(kind, resource, before, after, by)
