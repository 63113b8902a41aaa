"""How far a table is, as a file says it."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from smq.sealer.lake.state import (
    SLACK_MS,
    TableState,
    forget_state,
    in_step,
    move_old_states,
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


@pytest.mark.parametrize("name", [".b", "b" * 249, "." + "b" * 248, "b.delta.json", "b.delta"])
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_the_state_of_any_topic_is_found(tmp_path: Path, name: str, format_: str) -> None:
    """Use fault 10: names may begin with a dot, and have 249 letters."""
    state = replace(STATE, topic=name, format=format_)
    write_state(tmp_path, STATE)
    write_state(tmp_path, state)
    assert read_state(path_of(tmp_path, "a", name, format_)) == state
    assert state in list(states(tmp_path))
    forget_state(tmp_path, "a", name, format_)
    assert list(states(tmp_path)) == [STATE]


def test_states_from_before_are_moved_to_their_place(tmp_path: Path) -> None:
    """Use fault 10: a sweep and a deletion find the tables that there are."""
    folder = tmp_path / "tables" / "a"
    folder.mkdir(parents=True)
    old = [replace(STATE, topic=name) for name in ("b", ".b", "b.delta.json")]
    for state in old:
        (folder / f"{state.topic}.delta.json").write_text(json.dumps(asdict(state)))
    (folder / "other.json").write_text("{}")
    move_old_states(tmp_path)
    move_old_states(tmp_path)
    assert sorted(states(tmp_path), key=lambda each: each.topic) == sorted(
        old, key=lambda each: each.topic
    )
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["other.json"]


def test_a_state_that_cannot_be_understood_counts_as_none(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    path = path_of(tmp_path, "a", "b", "delta")
    for text in ("", "{", "[]", '{"namespace": "a"}'):
        path.write_text(text)
        assert read_state(path) is None
    assert list(states(tmp_path)) == []


@pytest.mark.parametrize(
    "crafted",
    [
        {"namespace": "../../home"},
        {"topic": "."},
        {"format": "config"},
        {"format": "iceberg"},
        {"files": "1"},
        {"synced_ms": True},
        {"followed_ms": 1.5},
        {"error_ms": 2**63},
        {"tidied_ms": -1},
        {"ends": {"0": None}},
        {"ends": [1]},
        {"note": 1},
    ],
)
def test_a_state_that_says_another_name_or_type_counts_as_none(
    tmp_path: Path, crafted: dict[str, object]
) -> None:
    """Door fault 2: the names in a file from elsewhere were the path where it was written."""
    write_state(tmp_path, STATE)
    path = path_of(tmp_path, "a", "b", "delta")
    path.write_text(json.dumps(asdict(STATE) | crafted))
    assert read_state(path) is None
    assert list(states(tmp_path)) == []
    path.rename(path.parent.parent / "b.delta.json")
    move_old_states(tmp_path)
    assert not path.exists()


def test_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    path = path_of(tmp_path, "a", "b", "delta")
    path.write_text(path.read_text().replace("{", '{"later": 1, ', 1))
    assert read_state(path) == STATE


def test_files_replaced_before_the_table_followed_may_be_swept() -> None:
    assert in_step([STATE], IDS, NOW_MS) == {"topics/a/b/": NOW_MS - SLACK_MS}


@pytest.mark.parametrize("ahead_ms", [1, 10 * SLACK_MS, 365 * 86_400_000])
def test_of_a_table_that_followed_in_the_future_nothing_may_be_swept(ahead_ms: int) -> None:
    """Data fault 6: a time line that began anew is behind. Every file that was replaced until it
    had caught up counted as gone from the table, though the table never followed."""
    state = replace(STATE, followed_ms=NOW_MS + ahead_ms)
    assert in_step([state], IDS, NOW_MS) == {"topics/a/b/": 0}


def test_of_an_unknown_table_nothing_may_be_swept() -> None:
    assert in_step([STATE], {}, NOW_MS) == {"topics/a/b/": 0}
    assert in_step([STATE], {("a", "b"): "2"}, NOW_MS) == {"topics/a/b/": 0}
    assert in_step([STATE], IDS, NOW_MS + REPLACED_KEEP_MS) == {"topics/a/b/": 0}
    behind = replace(STATE, format="iceberg", followed_ms=0)
    for both in ([STATE, behind], [behind, STATE]):
        assert in_step(both, IDS, NOW_MS) == {"topics/a/b/": 0}
