"""How far a table is, as a file says it."""

from dataclasses import replace
from pathlib import Path

from smq.sealer.lake.state import (
    SLACK_MS,
    TableState,
    forget_state,
    in_step,
    path_of,
    read_state,
    states,
    write_state,
)
from smq.store.manifest import REPLACED_KEEP_MS

NOW_MS = 10**12
STATE = TableState(
    namespace="a",
    topic="b",
    format="delta",
    topic_id="1",
    synced_ms=3,
    followed_ms=NOW_MS,
    ends={"0": 5},
)
IDS = {("a", "b"): "1"}


def test_a_state_comes_back_until_it_is_forgotten(tmp_path: Path) -> None:
    assert list(states(tmp_path)) == []
    write_state(tmp_path, STATE)
    assert list(states(tmp_path)) == [STATE]
    forget_state(tmp_path, "a", "b", "delta")
    forget_state(tmp_path, "a", "b", "delta")
    assert list(states(tmp_path)) == []


def test_a_state_that_cannot_be_understood_counts_as_none(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    path = path_of(tmp_path, "a", "b", "delta")
    for text in ("", "{", "[]", '{"namespace": "a"}'):
        path.write_text(text)
        assert read_state(path) is None
    assert list(states(tmp_path)) == []


def test_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    path = path_of(tmp_path, "a", "b", "delta")
    path.write_text(path.read_text().replace("{", '{"later": 1, ', 1))
    assert read_state(path) == STATE


def test_what_was_replaced_before_the_table_followed_may_be_swept() -> None:
    assert in_step([STATE], IDS, NOW_MS) == {"topics/a/b/": NOW_MS - SLACK_MS}


def test_of_an_unknown_table_nothing_may_be_swept() -> None:
    assert in_step([STATE], {}, NOW_MS) == {"topics/a/b/": 0}
    assert in_step([STATE], {("a", "b"): "2"}, NOW_MS) == {"topics/a/b/": 0}
    assert in_step([STATE], IDS, NOW_MS + REPLACED_KEEP_MS) == {"topics/a/b/": 0}
    behind = replace(STATE, format="iceberg", followed_ms=0)
    for both in ([STATE, behind], [behind, STATE]):
        assert in_step(both, IDS, NOW_MS) == {"topics/a/b/": 0}
