"""What docs/semantics.md names is there: each dialogue, each test."""

import ast
import re
from pathlib import Path

from tests.oracle.stage import all_dialogues

PAGE = Path("docs/semantics.md").read_text()
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
HOLDERS = [re.findall(r"`([^`]+)`", row[-1]) for row in ROWS if not row[-1].startswith("Held by")]


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_every_row_names_what_holds_it() -> None:
    assert len(HOLDERS) > 70
    assert all(HOLDERS)


def test_every_test_and_dialogue_that_is_named_is_there() -> None:
    named = {holder for holders in HOLDERS for holder in holders}
    dialogues = set(all_dialogues())
    missing = {each for each in named if "::" not in each} - dialogues
    for each in named:
        path, _, test = each.partition("::")
        if test and test not in functions_of(Path("tests") / path):
            missing.add(each)
    assert not missing
