"""Records when a table's tidyings first saw each file or snapshot: later ones know its age by it.

    <data.dir>/tables/<namespace>/<topic>/<format>.seen

Ages count on the time line, from the first sight: times in a table and of files come from wall
clocks, which may be set. If the file is lost, ages start over.
"""

import json
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple


class Mark(NamedTuple):
    """At this time of the time line, the newest snapshot had this sequence number."""

    now_ms: int
    sequence: int


class Seen(NamedTuple):
    """What the tidyings have found.

    table    the table's UUID: of another table it says nothing
    marks    oldest first
    unnamed  keys of metadata that nothing named at the last tidying
    """

    table: str = ""
    marks: tuple[Mark, ...] = ()
    unnamed: AbstractSet[str] = frozenset()

    def at(self, now_ms: int) -> "Seen":
        """The same, with no time in the future: the time line may have been lost."""
        marks = (each._replace(now_ms=min(each.now_ms, now_ms)) for each in self.marks)
        return self._replace(marks=tuple(marks))


def seen_path(state: Path) -> Path:
    """Where it is, beside a table's state."""
    return state.with_suffix(".seen")


def read_seen(path: Path) -> Seen:
    """What was found; nothing if the file is lost or cannot be understood."""
    try:
        found = json.loads(path.read_bytes())
        marks = tuple(Mark(int(now_ms), int(sequence)) for now_ms, sequence in found["marks"])
        return Seen(str(found["table"]), marks, frozenset(map(str, found["unnamed"])))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return Seen()


def write_seen(path: Path, seen: Seen) -> None:
    """Replace it. Raises OSError."""
    replace_json(path, seen._asdict() | {"unnamed": sorted(seen.unnamed)})


def replace_json(path: Path, content: object) -> None:
    """Replace a file in one step, or create it and its directory. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(content))
    unfinished.replace(path)
