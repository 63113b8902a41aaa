"""The history of transactions: attempts, outcomes, and the reads of committed records.

Programs copy numbered records from partition to partition. An *item* is a record of the source:
(partition, number). An *attempt* is one transaction of one life of one program.

    file of a program, a line each, written before the step that it is about:
        {"what": "begins", "attempt": 12, "items": [[0, 7], [0, 8]]}  it writes copies of these
        {"what": "commits", "attempt": 12}                 it is about to be committed
        {"what": "ends", "attempt": 12, "fate": "committed"}    it is known how that went
"""

import json
import os
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

COPY = struct.Struct(
    "<8i"
)  # An item, the attempt that wrote the copy, the one that it was read of.


class Attempt(NamedTuple):
    """A transaction: the n-th of one life of a program."""

    program: int
    life: int
    number: int


class Item(NamedTuple):
    """A record of the source."""

    partition: int
    number: int


class Copy(NamedTuple):
    """A copied record. `origin` wrote the copy that was read for it; the source has none."""

    item: Item
    attempt: Attempt
    origin: Attempt | None

    def packed(self) -> bytes:
        """As a record's value."""
        return COPY.pack(*self.item, *self.attempt, *(self.origin or (-1, -1, -1)))

    @classmethod
    def unpacked(cls, value: bytes) -> "Copy":
        """Of a record's value."""
        numbers = COPY.unpack(value)
        origin = Attempt(*numbers[5:]) if numbers[5] >= 0 else None
        return cls(Item(*numbers[:2]), Attempt(*numbers[2:5]), origin)


class Seen(NamedTuple):
    """A record that a reader was given."""

    topic: str
    partition: int
    offset: int
    copy: Copy


class Fate(StrEnum):
    """How an attempt ended. UNKNOWN: a commit was requested, and no answer arrived."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Tried:
    """An attempt: the topic it writes to, its items, and its fate. An attempt whose program was
    killed before the commit is aborted."""

    topic: str
    items: list[Item]
    fate: Fate = Fate.ABORTED


@dataclass
class History:
    """`reads` are those of each reader in its order; `whole` names the readers that have read
    everything from the start to the end after all was done."""

    sources: dict[int, int] = field(default_factory=dict)  # How many items a partition has.
    tried: dict[Attempt, Tried] = field(default_factory=dict)
    reads: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    whole: list[str] = field(default_factory=list)

    def add_lines(self, program: int, life: int, topic: str, lines: Iterable[str]) -> None:
        """Add the notes of one life of a program. The last line may be truncated."""
        for line in lines:
            try:
                noted = json.loads(line)
            except ValueError:
                return  # The program was killed in the middle of writing it.
            attempt = Attempt(program, life, noted["attempt"])
            match noted["what"]:
                case "begins":
                    items = [Item(*each) for each in noted["items"]]
                    self.tried[attempt] = Tried(topic, items)
                case "commits":
                    self.tried[attempt].fate = Fate.UNKNOWN
                case "ends":
                    self.tried[attempt].fate = Fate(noted["fate"])

    def count(self, *fates: Fate) -> int:
        """The number of attempts with this fate."""
        return sum(each.fate in fates for each in self.tried.values())


class Notes:
    """The file of one life of a program: its notes survive a kill."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._count = 0

    def begins(self, items: list[Item]) -> int:
        """A new attempt; its number."""
        self._count += 1
        self._note(what="begins", attempt=self._count, items=items)
        return self._count

    def commits(self, attempt: int) -> None:
        """Note that it is about to be committed."""
        self._note(what="commits", attempt=attempt)

    def ends(self, attempt: int, fate: Fate) -> None:
        """Note its known outcome."""
        self._note(what="ends", attempt=attempt, fate=fate)

    def _note(self, **fields: object) -> None:
        os.write(self._fd, json.dumps(fields).encode() + b"\n")
