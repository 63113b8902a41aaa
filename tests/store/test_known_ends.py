"""Where partitions end at least, by the manifest."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.errors import NotFound
from smq.model.segments import UNDECIDED, KnownEnds, Segment
from smq.store.known_ends import known_ends
from smq.store.store import Store

TOPIC = Topic("flights", UUID(int=7), (1, 2, 3, 4), (0, 1, 0, 2))


def segment(number: int, base: int) -> Segment:
    return Segment(number, base, base + 10, "raw", f"{number}-{base}", 100, 9, 10, -1, 5, 0, 5)


def test_the_ends_of_some_logs_partitions_are_found(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.add_topic(TOPIC, created_ms=0)
    store.manifest.commit_segments([segment(1, 0), segment(1, 10), segment(2, 0)])
    undecided = replace(segment(1, 20), kind=UNDECIDED)
    store.manifest.commit_undecided(undecided)
    store.manifest.set_log_start(3, 7)
    store.commit()
    assert known_ends(path, [0]) == [KnownEnds(1, 0, 20, 30), KnownEnds(3, 7, 0, 0)]
    assert known_ends(path, [2, 1]) == [KnownEnds(4, 0, 0, 0), KnownEnds(2, 0, 10, 0)]
    assert [each.end for each in known_ends(path, [0, 1])] == [30, 7, 10]
    store.close()


def test_a_store_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no such database"):
        known_ends(tmp_path / "none.sqlite", [0])
