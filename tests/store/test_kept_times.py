"""No kept time is in the future after a start."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.segments import Segment
from smq.store.rows import CommittedOffset
from smq.store.store import Store

YEAR_MS = 365 * 86_400_000
NOW_MS = 2 * YEAR_MS
LINE = Segment(1, 0, 100, "parquet", "topics/kafka/a/a", 10, 99, 100, -1, 2**62, 0, 5)


@pytest.mark.parametrize("kept_ms", [NOW_MS + YEAR_MS, NOW_MS, NOW_MS - YEAR_MS])
def test_times_in_the_future_are_clamped_to_now(tmp_path: Path, kept_ms: int) -> None:
    """Data fault 2: after a start whose time line is a year behind, or ahead."""
    store = Store.open(tmp_path / "store.sqlite")
    store.add_topic(Topic("a", UUID(int=7), (1, 2), (0, 0)), created_ms=0)
    for number, expire_ms in ((1, None), (2, kept_ms + 7)):
        store.commit_offsets("g", {number: CommittedOffset(7, -1, "", kept_ms, expire_ms)})
    store.manifest.commit_segments([replace(LINE, compacted_ms=kept_ms)])
    store.manifest.delete_segments([LINE.path], are_replaced=True, now_ms=kept_ms)
    store.manifest.commit_segments([replace(LINE, compacted_ms=kept_ms, path="b")])
    store.clamp_times(NOW_MS)
    clamped_ms = min(kept_ms, NOW_MS)
    offsets = store.committed_offsets("g")
    assert [(each.commit_ms, each.expire_ms) for each in offsets.values()] == [
        (clamped_ms, None),
        (clamped_ms, clamped_ms + 7),
    ]
    [segment] = store.manifest.segments(1)
    assert segment.compacted_ms == clamped_ms
    assert store.manifest.replaced_files([LINE.path], clamped_ms) == {LINE.path}
    assert store.manifest.replaced_files([LINE.path], clamped_ms + 1) == set()
    store.close()
