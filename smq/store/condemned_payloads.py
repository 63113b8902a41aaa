"""Payloads that are being deleted: no new record may name them.

    condemned   before the file is deleted; what a shard then learns of it is 'too old'
    forgotten   once it is deleted, so that the same payload may be uploaded again

A payload that a record names after all stays, and stays condemned: it is older than new records may
name anyway.
"""

from collections.abc import Sequence

from smq.store.database import Database

CONDEMNED_MAX = 100_000  # As many as the sealer remembers from sweep to sweep.


class CondemnedPayloads:
    """Their keys in the filer, and since when (`now_ms`, on the time line)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, keys: Sequence[str], now_ms: int, settle_ms: int) -> list[str]:
        """Condemn payloads; returns those that have been so for `settle_ms`.

        Repeating it is harmless. If there are too many, the oldest are forgotten.
        """
        self._database.change_many(
            "INSERT INTO condemned_payloads (key, since_ms) VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET since_ms = min(since_ms, excluded.since_ms)",
            [(key, now_ms) for key in keys],
        )
        self._database.change(
            "DELETE FROM condemned_payloads WHERE number <= "
            "(SELECT max(number) FROM condemned_payloads) - ?",
            (CONDEMNED_MAX,),
        )
        settled = "SELECT 1 FROM condemned_payloads WHERE key = ? AND since_ms <= ?"
        return [key for key in keys if self._database.rows(settled, (key, now_ms - settle_ms))]

    def forget(self, keys: Sequence[str]) -> None:
        """These payloads are deleted."""
        self._database.change_many(
            "DELETE FROM condemned_payloads WHERE key = ?", [(key,) for key in keys]
        )
