"""The matrix as it is written: for each step the answers, and who got each.

    {dialogue: {version: {step: [[principals, answer], ...]}}}

Principals are words in one text, in the order of the table; who is not named in a step is in the
row of `OTHERS`. A step that was answered as in the version before is `"as before"`.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tests.oracle.rights.principals import PRINCIPALS

Steps = dict[str, Any]  # Step: answer, of one principal.
Matrix = dict[str, Steps]  # Principal: steps, of one dialogue in one version.
Rows = list[list[Any]]
OTHERS = "others"
AS_BEFORE = "as before"
ROWS_DEPTH = 4  # Below the file, its dialogues, one of them, a version, a step.
STEPS_DEPTH = 3  # Below a file without versions.


def rows(answers: Mapping[str, Any]) -> Rows:
    """Principals by their answer to one step; the answer that most get comes first."""
    groups: dict[str, list[str]] = {}
    for principal, answer in answers.items():
        groups.setdefault(json.dumps(answer), []).append(principal)
    most, *less = sorted(groups.values(), key=len, reverse=True)
    less.sort(key=lambda group: list(answers).index(group[0]))
    return [[OTHERS, answers[most[0]]], *([" ".join(each), answers[each[0]]] for each in less)]


def answers_of(written: Iterable[list[Any]]) -> dict[str, Any]:
    """The inverse of `rows`."""
    (others, of_others), *less = written
    assert others == OTHERS, others
    named = {name: answer for group, answer in less for name in group.split()}
    return {name: named.get(name, of_others) for name in PRINCIPALS}


def as_written(versions: Mapping[int, Matrix]) -> dict[str, dict[str, Any]]:
    """One dialogue for its file."""
    written: dict[str, dict[str, Any]] = {}
    before: dict[str, Any] = {}
    for version, matrix in versions.items():
        steps = _by_step(matrix)
        written[str(version)] = {
            step: AS_BEFORE if before.get(step) == each else each for step, each in steps.items()
        }
        before = steps
    return written


def as_read(written: Mapping[str, Mapping[str, Any]]) -> dict[int, Matrix]:
    """The inverse of `as_written`."""
    versions: dict[int, Matrix] = {}
    before: dict[str, Any] = {}
    for version, steps in written.items():
        before = {step: before[step] if each == AS_BEFORE else each for step, each in steps.items()}
        matrix: Matrix = {name: {} for name in PRINCIPALS}
        for step, each in before.items():
            for name, answer in answers_of(each).items():
                matrix[name][step] = answer
        versions[int(version)] = matrix
    return versions


def _by_step(matrix: Matrix) -> dict[str, Rows]:
    steps = list(dict.fromkeys(step for each in matrix.values() for step in each))
    return {step: rows({name: each.get(step) for name, each in matrix.items()}) for step in steps}


def text(value: Any, rows_depth: int = ROWS_DEPTH, depth: int = 0) -> str:
    """A file as JSON, with a line for each of what is at this depth."""
    margin = " " * (depth + 1)
    if isinstance(value, dict) and depth < rows_depth:
        lines = [
            f"{json.dumps(name)}: {text(each, rows_depth, depth + 1)}"
            for name, each in value.items()
        ]
        brackets = "{}"
    elif isinstance(value, list) and depth == rows_depth:
        lines, brackets = [json.dumps(each) for each in value], "[]"
    else:
        return json.dumps(value)
    inner = ",".join(f"\n{margin}{line}" for line in lines)
    return f"{brackets[0]}{inner}\n{margin[1:]}{brackets[1]}"
