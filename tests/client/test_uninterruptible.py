"""Statements that say that they are uninterruptible are so: see shm.interrupts."""

import ast
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens

import pytest

ROOT = Path(__file__).parent.parent.parent / "smq" / "client"
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
MARK = re.compile(r"# Uninterruptible(?: (from here on|with the next|with the return|since))?\b")
INTERRUPTIBLE = (
    ast.Call,
    ast.For,
    ast.While,
    ast.With,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.AsyncFor,
    ast.AsyncWith,
)


def marks(source: str) -> Iterator[tuple[int, str]]:
    """The line and the extent of each mark."""
    for token in generate_tokens(StringIO(source).readline):
        if token.type == COMMENT and (mark := MARK.match(token.string)):
            yield token.start[0], mark.group(1) or ""


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def statements_at(tree: ast.AST, line: int) -> list[ast.stmt]:
    """The statement that ends on a line, else the one that begins behind it; and its followers."""
    ending = [b[i:] for b in blocks(tree) for i, each in enumerate(b) if each.end_lineno == line]
    if ending:
        return max(ending, key=lambda block: block[0].lineno)
    behind = [b[i:] for b in blocks(tree) for i, each in enumerate(b) if each.lineno > line]
    return min(behind, key=lambda block: block[0].lineno)


def broken(source: str) -> list[str]:
    """What may be interrupted in statements that are marked."""
    tree, found = ast.parse(source), []
    for line, extent in marks(source):
        block = statements_at(tree, line)
        count = {"from here on": len(block), "": 1, "since": 1}.get(extent, 2)
        nodes = [node for each in block[:count] for node in ast.walk(each)]
        breaks = [node for node in nodes if isinstance(node, INTERRUPTIBLE)]
        if extent == "since":  # A call that comes last: an interrupt comes behind it.
            breaks = breaks[1:]
        found += [f"line {line}: {type(each).__name__}" for each in breaks]
    return found


@pytest.mark.parametrize("path", FILES, ids=str)
def test_statements_marked_uninterruptible_have_no_calls_and_no_loops(path: Path) -> None:
    assert broken((ROOT / path).read_text()) == []


def test_there_are_marks() -> None:
    assert any(next(marks((ROOT / path).read_text()), None) for path in FILES)


@pytest.mark.parametrize(
    ("code", "is_broken"),
    [
        ("a = 1  # Uninterruptible with the next.\nb = a\nc()\n", False),
        ("a = 1  # Uninterruptible with the next.\nb = c()\n", True),
        ("# Uninterruptible from here on: why.\na = 1\nif a:\n    b()\n", True),
        ("if a:\n    a = 1  # Uninterruptible from here on.\n    del a\nb()\n", False),
        ("a.append(b)  # Uninterruptible since its row.\n", False),
        ("a.append(b())  # Uninterruptible since its row.\n", True),
        ("a = [b for b in c]  # Uninterruptible; see shm.interrupts.\n", True),
    ],
)
def test_marks_are_understood(code: str, *, is_broken: bool) -> None:
    assert bool(broken(code)) == is_broken
