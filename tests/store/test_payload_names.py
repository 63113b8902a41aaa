"""Payloads' names: added before a line, forgotten after it, both in portions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.errors import PreconditionFailed
from smq.model.segments import Segment
from smq.store.payload_names import NAMES_A_STEP
from smq.store.store import Store
from tests.store.sql_work import rows_written

TOPIC = Topic("flights", UUID(int=7), (1,), (0,))
LINE = Segment(1, 0, 100, "parquet", "topics/kafka/flights/a", 10, 99, 100, -1, 2**62, 0, 5)
IDS = [f"{number:08}" for number in range(3 * NAMES_A_STEP)]
ROWS_MAX = 3 * NAMES_A_STEP  # A name, its row in the index, and some.


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    store.add_topic(TOPIC, created_ms=0)
    yield store
    store.close()


def portions(ids: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(ids), NAMES_A_STEP):
        yield ids[first : first + NAMES_A_STEP]


def restarted(store: Store, tmp_path: Path) -> Store:
    """What a killed coordinator finds: the last commit."""
    store.close()
    return Store.open(tmp_path / "store.sqlite")


def forget(store: Store) -> int:
    """Forget all there is to forget; returns the number of steps."""
    steps, names = 0, store.manifest.names
    while names.may_have_gone:
        assert rows_written(store.manifest._database, names.forget_some) <= ROWS_MAX
        steps += 1
    return steps


def test_neither_naming_nor_forgetting_takes_a_large_step(store: Store) -> None:
    """data fault 13: a line with 500,000 names was one step of 0.75 s, its deletion another."""
    manifest, database = store.manifest, store.manifest._database
    for some in portions(IDS):
        assert rows_written(database, lambda: manifest.name_payloads(LINE.path, some)) <= ROWS_MAX  # noqa: B023
    assert rows_written(database, lambda: manifest.commit_segments([LINE])) <= 5
    assert forget(store) == 1
    assert rows_written(database, lambda: manifest.delete_segments([LINE.path])) <= 5
    assert manifest.named_payloads(IDS) == {*IDS}, "a name counts until it is forgotten"
    assert forget(store) > len(IDS) // NAMES_A_STEP
    assert manifest.named_payloads(IDS) == set()
    assert database.rows("SELECT * FROM payload_files") == []


def test_a_merge_takes_names_along_some_at_a_time(store: Store) -> None:
    """data fault 13: as above."""
    manifest, second = store.manifest, replace(LINE, path="b", base_offset=100, end_offset=200)
    for some in portions(IDS):
        manifest.name_payloads(LINE.path, some)
    manifest.name_payloads("b", ["0", IDS[0]])
    manifest.commit_segments([LINE, second])
    merged = replace(LINE, path="c", end_offset=200)
    found = list(manifest.payloads_of([LINE.path, "b", "unknown"]))
    assert max(len(some) for some in found) == NAMES_A_STEP
    for some in found:
        manifest.name_payloads("c", some)
    assert manifest.replace_segments([LINE, second], merged, now_ms=1000)
    forget(store)
    assert manifest.named_payloads([*IDS, "0"]) == {*IDS, "0"}
    assert [*manifest.payloads_of([LINE.path, "b"])] == []


@pytest.mark.parametrize("again", [False, True])
def test_names_whose_line_never_comes_go_with_the_sweep_of_the_file(
    store: Store, tmp_path: Path, again: bool
) -> None:
    """data fault 13: a sealer that is killed between two portions leaves a file half named."""
    store.manifest.name_payloads(LINE.path, IDS[:10])
    store.commit()
    store = restarted(store, tmp_path)
    forget(store)
    assert store.manifest.named_payloads(IDS[:10]) == {*IDS[:10]}, "its line may still come"
    if again:
        for some in portions(IDS):
            store.manifest.name_payloads(LINE.path, some)
        store.manifest.commit_segments([LINE])
        forget(store)
        assert store.manifest.named_payloads(IDS) == {*IDS}
        return
    assert store.manifest.condemn_files([LINE.path]) == [LINE.path]
    forget(store)
    assert store.manifest.named_payloads(IDS[:10]) == set()
    with pytest.raises(PreconditionFailed, match="its line comes too late"):
        store.manifest.name_payloads(LINE.path, IDS[:10])
    store.close()


def test_a_line_that_is_refused_or_skipped_keeps_no_names(store: Store) -> None:
    manifest, late = store.manifest, replace(LINE, path="late")
    for segment in (LINE, late):
        manifest.name_payloads(segment.path, [segment.path])
        assert manifest.commit_segments([segment]) == [LINE]
    forget(store)
    assert manifest.named_payloads([LINE.path, "late"]) == {LINE.path}
    nowhere = replace(LINE, partition_number=9, path="nowhere")
    manifest.name_payloads("nowhere", ["n"])
    assert manifest.commit_segments([nowhere]) == []
    forget(store)
    manifest.name_payloads("nowhere", ["m"])
    assert not manifest.replace_segments([nowhere], nowhere, now_ms=1000)
    forget(store)
    assert manifest.named_payloads(["m", "n"]) == set()


def test_half_forgotten_names_are_forgotten_after_a_restart(store: Store, tmp_path: Path) -> None:
    """data fault 13: a kill between two portions, and one before the first is committed."""
    for some in portions(IDS):
        store.manifest.name_payloads(LINE.path, some)
    store.manifest.commit_segments([LINE])
    store.manifest.delete_segments([LINE.path])
    store.manifest.names.forget_some()
    store.commit()
    store.manifest.names.forget_some()
    store = restarted(store, tmp_path)
    assert len(store.manifest.named_payloads(IDS)) == 2 * NAMES_A_STEP
    forget(store)
    assert store.manifest.named_payloads(IDS) == set()
    store.close()
