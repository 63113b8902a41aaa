"""A store that its broker would end at is refused before it is served."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from smq.app.supervisor.datadir import Meta, new_cluster_id
from smq.backup import loading
from smq.backup.loading import check_it_loads
from smq.model.errors import StoreError
from smq.store.copying import check_store
from tests.store.test_content import crafted, filled, member

META = Meta(new_cluster_id(), 1, 7)


def rows(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as store:
        return [*store.iterdump()]


@pytest.mark.parametrize(
    "script",
    [
        "",
        member("x''"),
        "INSERT INTO resource_configs VALUES ('broker', '', 'message.max.bytes', '2000000')",
        "INSERT INTO resource_configs VALUES ('broker', '7', 'message.max.bytes', '2000000')",
        "UPDATE topics SET namespace = '', name = id",
        "UPDATE counters SET next = 1000",
    ],
)
def test_a_store_that_loads_is_left_as_it_is(tmp_path: Path, script: str) -> None:
    path = crafted(tmp_path / "store.sqlite", script)
    before = rows(path)
    check_it_loads(path, META)
    assert rows(path) == before


@pytest.mark.parametrize("log", [1, 7])
def test_partitions_in_logs_that_there_are_not_are_refused(tmp_path: Path, log: int) -> None:
    path = crafted(tmp_path / "store.sqlite", f"UPDATE partitions SET log = {log} WHERE number = 2")
    check_store(path)
    with pytest.raises(StoreError, match=f"has a partition in log {log}, and meta.json says"):
        check_it_loads(path, META)


def test_rows_that_end_a_load_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(loading, "partition_settings", ends)
    with pytest.raises(StoreError, match=r"no broker can load it .*Error.*: somebody has changed"):
        check_it_loads(filled(tmp_path / "store.sqlite"), META)


@pytest.mark.parametrize(
    ("bound", "value", "words"),
    [
        ("CATALOG_BYTES_MAX", 100, "more room than there is"),
        ("PARTITIONS_PER_LOG_MAX", 1, "more partitions than there is room"),
    ],
)
def test_topics_beyond_the_room_for_them_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, words: str
) -> None:
    monkeypatch.setattr(loading, bound, value)
    with pytest.raises(StoreError, match=words):
        check_it_loads(filled(tmp_path / "store.sqlite"), META)
