"""The code that copies fields which newer versions replaced: see `>` in the notation."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from smq.wire.messages.notation import Field


class Copy(NamedTuple):
    """The lines that make a newer field of an older one, or of several, and the reverse."""

    place: str  # Where a reader puts the older field, and a writer takes it from.
    before_reading: str
    after_reading: str
    before_writing: str


# groups.group_id: fields of the only row.
ROW = Copy(
    "{row}.{leaf}", "{row} = {type}()\nmessage.{newer} = [{row}]", "", "({row},) = message.{newer}"
)
# coordinator_keys: the only element.
ELEMENT = Copy("{older}", "", "message.{newer} = [{older}]", "({older},) = message.{newer}")
# topics.name, where the older field is an array: a row for each.
ROWS = Copy(
    "{older}",
    "",
    "message.{newer} = [{type}({leaf}=each) for each in {older}]",
    "{older}: list[str] = [each.{leaf} for each in message.{newer}]  # type: ignore[misc]",
)
# replica_state.replica_id: a field of a structure, which is absent where it has its default.
STRUCTURE = Copy(
    "{older}",
    "",
    "if {older} != {default}:\n    message.{newer} = {type}({leaf}={older})",
    "{older} = message.{newer}.{leaf} if message.{newer} is not None else {default}",
)


def kind(newer: Field, older: Field) -> Copy:
    """How an older field is copied."""
    leaves = [each for each in newer.fields if each.name in older.path[1:]]
    if not leaves:
        return ELEMENT
    if not newer.is_array:
        return STRUCTURE
    return ROWS if older.is_array and not leaves[0].is_array else ROW


class Replacement:
    """The older fields that one newer field replaces."""

    def __init__(self, newer: Field, older: list[Field], row: str, test: str) -> None:
        self._test, self._copy = test, kind(newer, older[0])
        assert self._copy is ROW or len(older) == 1, "only a row has several fields"
        self._names = {"newer": newer.name, "type": newer.type, "row": row}
        self._older = older[0]

    def place(self, older: Field) -> str:
        """Where a reader puts a field, and a writer takes it from."""
        return self._filled(self._copy.place, older)

    def lines(self, when: str) -> Iterator[str]:
        """The lines for a moment, which is a field of Copy."""
        filled = self._filled(getattr(self._copy, when), self._older)
        if filled:
            yield f"    if {self._test}:"
            yield from (f"        {line}" for line in filled.split("\n"))

    def _filled(self, code: str, older: Field) -> str:
        last = {"older": older.name, "leaf": older.path[-1], "default": older.default}
        return code.format(**self._names, **last)


def replacements(
    fields: list[Field], row_name: Callable[[Field], str], test: Callable[[range], str]
) -> dict[str, Replacement]:
    """Those of a structure, by the newer field. `test` gives the code that tests for versions."""
    newer = {each.name: each for each in fields if not each.replaced_by}
    found = {}
    for name, group in groupby((f for f in fields if f.replaced_by), lambda each: each.path[0]):
        older = list(group)
        versions = range(min(f.versions.start for f in older), max(f.versions.stop for f in older))
        found[name] = Replacement(newer[name], older, row_name(newer[name]), test(versions))
    return found
