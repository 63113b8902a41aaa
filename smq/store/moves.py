"""The moves of partitions that have ended, whether they were made or given up: the newest only."""

from pathlib import Path
from typing import NamedTuple

from smq.store.database import Database

MOVES_MAX = 10_000  # Older ones go: a cluster may move partitions for ever.
TEXT_BYTES_MAX = 512  # Kept of each text: names of users may have 32 KiB.


class StoredMove(NamedTuple):
    """A move of a partition from node to node, or a try.

    `began_ms`: the wall clock when it was asked for. `principal` at `client_host` asked for it, for
    a `reason`. `outcome`: why it was given up; "": it was made.
    """

    began_ms: int
    took_ms: int
    topic: str
    partition: int
    source: int
    target: int
    principal: str
    client_host: str
    reason: str
    outcome: str = ""


class MoveTable:
    """The table of moves."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, move: StoredMove) -> None:
        """Note a move that has ended. Durable with the next commit."""
        columns = ", ".join(StoredMove._fields)
        marks = ", ".join("?" * len(move))
        self._database.change(
            f"INSERT INTO moves ({columns}) VALUES ({marks})",  # noqa: S608  (names of ours)
            [_cut(value) if isinstance(value, str) else value for value in move],
        )
        self._database.change(
            "DELETE FROM moves WHERE id <= (SELECT max(id) FROM moves) - ?", (MOVES_MAX,)
        )

    def newest(self, count: int) -> list[StoredMove]:
        """The newest moves, the newest first."""
        columns = ", ".join(StoredMove._fields)
        question = f"SELECT {columns} FROM moves ORDER BY id DESC LIMIT ?"  # noqa: S608
        return [StoredMove(*row) for row in self._database.rows(question, (count,))]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def open_moves(path: Path) -> MoveTable:
    """The moves in a coordinator's store, for another process. Raises StoreError."""
    return MoveTable(Database.open_read_only(path))


def _cut(text: str) -> str:
    return text.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
