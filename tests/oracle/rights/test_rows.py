"""The matrix as it is written."""

import json
from typing import Any

from tests.oracle.rights.principals import PRINCIPALS
from tests.oracle.rights.rows import OTHERS, answers_of, as_read, as_written, rows, text

SOME = {name: {"error_code": 29} for name in PRINCIPALS} | {
    "super": {"error_code": 0},
    "prefixed": {"error_code": 0},
    "of-all": {"error_code": 3},
}


def test_principals_are_grouped_by_their_answer() -> None:
    assert rows(SOME) == [
        [OTHERS, {"error_code": 29}],
        ["super prefixed", {"error_code": 0}],
        ["of-all", {"error_code": 3}],
    ]


def test_rows_are_read_back() -> None:
    assert answers_of(rows(SOME)) == SOME


def matrix(step: str, answers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {step: answer, f"{step} again": 7} for name, answer in answers.items()}


def test_an_answer_as_in_the_version_before_is_written_once() -> None:
    written = as_written({0: matrix("s", SOME), 3: matrix("s", SOME)})
    assert written["3"] == {"s": "as before", "s again": "as before"}


def test_a_dialogue_is_read_back() -> None:
    less = SOME | {"super": {"error_code": 29}}
    versions = {0: matrix("s", SOME), 3: matrix("s", SOME), 9: matrix("s", less)}
    assert as_read(json.loads(json.dumps(as_written(versions)))) == versions


def test_each_row_is_a_line() -> None:
    content = {"kafka": "4", "dialogues": {"d": as_written({0: matrix("s", SOME)})}}
    written = text(content)
    assert json.loads(written) == content
    assert '     ["super prefixed", {"error_code": 0}],' in written.splitlines()
