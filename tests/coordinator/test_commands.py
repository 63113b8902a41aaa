"""Commands of our own processes: the manifest, and topics that must be there."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from smq.coordinator.commands import LIST_SEGMENTS_MAX, execute
from smq.coordinator.topics import NewTopic
from smq.store.rows import Segment
from tests.coordinator.coordinator_driver import CoordinatorDriver

SEGMENT = asdict(Segment(1, 0, 100, "parquet", "topics/a", 10, 99, 100, 5, 6, 0, 7))


def ask(driver: CoordinatorDriver, do: str, **command: Any) -> Any:
    question = json.loads(json.dumps({"do": do, **command}))
    return json.loads(json.dumps(execute(question, driver.coordinator, driver.now)))


@pytest.fixture(autouse=True)
def _topic(driver: CoordinatorDriver) -> None:
    driver.coordinator.topics.create(NewTopic(name="a", partition_count=2), driver.now)


def test_segments_are_committed_listed_and_deleted(driver: CoordinatorDriver) -> None:
    assert ask(driver, "commit_segments", segments=[SEGMENT]) == {"ok": [SEGMENT]}
    assert ask(driver, "list_segments", number=1) == {"ok": {"log_start": 0, "segments": [SEGMENT]}}
    assert ask(driver, "list_segments", number=1, from_offset=100)["ok"]["segments"] == []
    assert ask(driver, "delete_segments", number=1, base_offsets=[0]) == {"ok": True}
    assert ask(driver, "list_segments", number=1)["ok"]["segments"] == []


def test_very_many_segments_are_listed_by_pages(driver: CoordinatorDriver) -> None:
    count = LIST_SEGMENTS_MAX + 5
    ends = [{"base_offset": i, "end_offset": i + 1, "path": f"topics/{i}"} for i in range(count)]
    ask(driver, "commit_segments", segments=[SEGMENT | each for each in ends])
    first = ask(driver, "list_segments", number=1)["ok"]["segments"]
    assert len(first) == LIST_SEGMENTS_MAX
    rest = ask(driver, "list_segments", number=1, from_offset=first[-1]["end_offset"])
    assert [each["path"] for each in first + rest["ok"]["segments"]] == [e["path"] for e in ends]


def test_committing_again_names_the_file_that_counts(driver: CoordinatorDriver) -> None:
    ask(driver, "commit_segments", segments=[SEGMENT])
    again = SEGMENT | {"path": "topics/b", "attempt": 1}
    assert ask(driver, "commit_segments", segments=[again]) == {"ok": [SEGMENT]}


def test_an_overlap_is_an_error_with_a_sentence(driver: CoordinatorDriver) -> None:
    ask(driver, "commit_segments", segments=[SEGMENT])
    answer = ask(driver, "commit_segments", segments=[SEGMENT | {"end_offset": 101}])
    assert "overlaps topics/a" in answer["error"]


def test_the_log_start_rises(driver: CoordinatorDriver) -> None:
    assert ask(driver, "set_log_start", number=2, offset=30) == {"ok": True}
    assert ask(driver, "list_segments", number=2)["ok"]["log_start"] == 30


def test_topics_are_made_when_somebody_asks_for_them(driver: CoordinatorDriver) -> None:
    answer = ask(driver, "ensure_topics", names=["a", "b"])
    assert answer == {"ok": {"a": None, "b": None}}
    assert "b" in driver.coordinator.topics.catalog.by_name


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ({"do": "format_disk"}, "no command 'format_disk'"),
        ({}, "no command None"),
        ({"do": "list_segments"}, "malformed"),
        ({"do": "commit_segments", "segments": [{"path": "x"}]}, "malformed"),
        ({"do": "commit_segments", "segments": 5}, "malformed"),
    ],
)
def test_what_is_not_understood_is_an_error(
    driver: CoordinatorDriver, command: dict[str, Any], word: str
) -> None:
    assert word in execute(command, driver.coordinator, driver.now)["error"]
