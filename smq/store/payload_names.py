"""Which payloads the records of each segment's file name.

    named     in portions, before the file's line is in the manifest
    gone      with the line, or when it is certain that it never comes (smq.store.manifest)
    forgotten in portions, afterwards

A file may name a million payloads: no step of the coordinator handles them all. A name counts until
it is forgotten, so a payload lives a little longer, never shorter.
"""

from collections.abc import Iterable, Iterator, Sequence

from smq.store.database import Database

NAMES_A_STEP = 500  # Some milliseconds.


class PayloadNames:
    """The names. A line that is deleted marks its file as gone by a trigger."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.may_have_gone = True
        """Whether `forget_some` may have something to do."""

    def add(self, path: str, ids: Sequence[str]) -> None:
        """The records of a file name these payloads. Repeating it is harmless."""
        self._database.change(
            "INSERT INTO payload_files (path) VALUES (?) ON CONFLICT DO UPDATE SET is_gone = 0",
            (path,),
            lazy=True,
        )
        [(number,)] = self._database.rows(
            "SELECT number FROM payload_files WHERE path = ?", (path,)
        )
        self._database.change_many(
            "INSERT OR IGNORE INTO payload_names VALUES (?, ?)",
            [(number, each) for each in ids],
            lazy=True,
        )

    def of(self, paths: Iterable[str]) -> Iterator[list[str]]:
        """The payloads that these files name, in portions."""
        for path in paths:
            some = self._after(path, "")
            while some:
                yield some
                some = self._after(path, some[-1])

    def _after(self, path: str, last: str) -> list[str]:
        rows = self._database.rows(
            "SELECT id FROM payload_names "
            "WHERE file = (SELECT number FROM payload_files WHERE path = ?) AND id > ? "
            "ORDER BY id LIMIT ?",
            (path, last, NAMES_A_STEP),
        )
        return [each for (each,) in rows]

    def let_go(self, paths: Iterable[str]) -> None:
        """These files get no line any more."""
        self._database.change_many(
            "UPDATE payload_files SET is_gone = 1 WHERE path = ?",
            [(path,) for path in paths],
            lazy=True,
        )
        self.may_have_gone = True

    def forget_some(self) -> None:
        """Forget some names of files that are gone."""
        gone = self._database.rows("SELECT number FROM payload_files WHERE is_gone = 1 LIMIT 1")
        for (number,) in gone:
            forgotten = self._database.change(
                "DELETE FROM payload_names WHERE file = ? AND id IN "
                "(SELECT id FROM payload_names WHERE file = ? ORDER BY id LIMIT ?)",
                (number, number, NAMES_A_STEP),
                lazy=True,
            )
            if forgotten < NAMES_A_STEP:
                self._database.change(
                    "DELETE FROM payload_files WHERE number = ?", (number,), lazy=True
                )
        self.may_have_gone = bool(gone)
