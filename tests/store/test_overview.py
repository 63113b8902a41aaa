"""The store at a glance."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.errors import NotFound
from smq.model.segments import UNDECIDED, Segment
from smq.store.overview import Committed, Sealed, open_overview
from smq.store.rows import CommittedOffset
from smq.store.store import Store

TOPIC = Topic("flights", UUID(int=7), (1, 2), (0, 1))


def test_it_sees_what_was_committed_and_that_there_is_more(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.add_topic(TOPIC, created_ms=0)
    store.commit()
    overview = open_overview(path)
    before = overview.version()
    assert (overview.sealed(), overview.committed(), overview.members()) == ({}, [], {})
    segments = [
        Segment(1, base, base + 10, "raw", f"a{base}", 100, 9, 10, -1, 5, 0, 5) for base in (0, 10)
    ]
    store.manifest.commit_segments(segments)
    store.manifest.commit_undecided(replace(segments[0], base_offset=20, kind=UNDECIDED, path="u"))
    store._database.change(
        "INSERT INTO committed_offsets VALUES"
        " ('g', 1, 7, -1, '', 0, NULL, 0), ('g', 2, 8, -1, '', 0, NULL, 0)"
    )
    store._database.change("INSERT INTO groups VALUES ('g', NULL, 0, NULL, NULL, NULL)")
    assert overview.version() == before
    store.commit()
    assert overview.version() != before
    assert overview.sealed() == {1: Sealed(3, 300)}
    assert overview.committed() == [Committed("g", 1, 7), Committed("g", 2, 8)]
    assert overview.members() == {"g": 0}
    assert [topic.name for topic in overview.manifest.topics()] == ["flights"]
    overview.close()
    store.close()


def test_an_offset_below_0_is_no_place(tmp_path: Path) -> None:
    """Use fault 11: librdkafka commits -1001 where it has read nothing."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.add_topic(TOPIC, created_ms=0)
    offsets = {1: CommittedOffset(-1001, -1, "", 0), 2: CommittedOffset(0, -1, "", 0)}
    store.commit_offsets("g", offsets)
    store.commit_offsets("h", {1: CommittedOffset(-1, -1, "", 0)})
    store.commit()
    overview = open_overview(path)
    assert overview.committed() == [Committed("g", 2, 0)]
    overview.close()
    store.close()


def test_a_store_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no such database"):
        open_overview(tmp_path / "none.sqlite")
