"""The history of settings: each change with its author, time and former value, the newest only."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from smq.model.config import SETTINGS
from smq.model.setting import HIDDEN
from smq.store.database import Database

CHANGES_MAX = 10_000  # Older ones go: clients change settings as often as they like.
CLIENT_CHARACTERS_MAX = 255  # Kept of a client's own name, which may be long.
# Kept of a value and of a resource's name, which may have 32 KiB: each start reads all changes.
TEXT_BYTES_MAX = 512


class Changer(NamedTuple):
    """The author of a change: the client's id, its address, and the time (wall clock)."""

    client_id: str
    client_host: str
    wall_ms: int


class ConfigChange(NamedTuple):
    """One change of one setting of a resource ("topic"); None: it had, or has, its default.

    Of a long text there is the beginning, and how long it is.
    """

    changed_ms: int
    resource_type: str
    resource: str
    name: str
    before: str | None
    after: str | None
    client_id: str
    client_host: str


class ConfigChanges:
    """The table of changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(
        self,
        kind: str,
        resource: str,
        before: Mapping[str, str],
        after: Mapping[str, str],
        by: Changer,
    ) -> None:
        """Note each setting of a resource that differs. Durable with the next commit."""
        who = by.client_id[:CLIENT_CHARACTERS_MAX], by.client_host
        whose = kind, _cut(resource)
        self._database.change_many(
            "INSERT INTO config_changes (changed_ms, resource_type, resource, name, before, after, "
            "client_id, client_host) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (by.wall_ms, *whose, name, _cut(before.get(name)), _cut(after.get(name)), *who)
                for name in sorted({*before, *after})
                if before.get(name) != after.get(name)
            ],
        )
        self._database.change(
            "DELETE FROM config_changes WHERE id <= (SELECT max(id) FROM config_changes) - ?",
            (CHANGES_MAX,),
        )

    def newest(self, count: int, kind: str = "", resource: str = "") -> list[ConfigChange]:
        """The newest changes, of one resource or of all, the newest first."""
        rows = self._database.rows(
            "SELECT changed_ms, resource_type, resource, name, before, after, client_id, "
            "client_host FROM config_changes "
            "WHERE ?1 = '' OR (resource_type = ?1 AND resource = ?2) ORDER BY id DESC LIMIT ?3",
            (kind, _cut(resource), count),
        )
        return [_shown(ConfigChange(*row)) for row in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _cut(text: str | None) -> str | None:
    encoded = b"" if text is None else text.encode()
    if len(encoded) <= TEXT_BYTES_MAX:
        return text
    beginning = encoded[:TEXT_BYTES_MAX].decode(errors="ignore")
    return f"{beginning}… ({len(encoded)} bytes)"


def _shown(change: ConfigChange) -> ConfigChange:
    """The change without the values of a secret, which earlier versions have noted."""
    setting = SETTINGS.get(change.name)
    if setting is None or not setting.secret:
        return change
    return change._replace(before=change.before and HIDDEN, after=change.after and HIDDEN)


def open_config_changes(path: Path) -> ConfigChanges:
    """The changes in the store at `path`, read-only. Raises StoreError."""
    return ConfigChanges(Database.open_read_only(path))
