"""Tests of Iceberg tables only. tests/sealer/lake/test_publish.py has the rest."""

from pathlib import Path

import pytest

from smq.app.process.clock import wall_ms
from smq.model.errors import StoreError
from smq.sealer.lake.errors import LakeError
from tests.sealer.lake.lake_kit import (
    BEGIN_MS,
    KEEP_MS,
    NAMESPACE,
    TOPIC,
    Lake,
    assert_follows,
    lake_in,
    story,
)
from tests.sealer.lake.rest_catalog import rest_catalog

YEAR_MS = 365 * 86_400_000


def test_a_filter_reads_few_files(tmp_path: Path) -> None:
    with lake_in(tmp_path, "iceberg") as lake:
        lake.seal(0, 4)
        lake.seal(1, 4)
        lake.publish()
        scan = lake.iceberg().scan(row_filter="partition = 1 and _offset < 3")
        assert len(list(scan.plan_files())) == 1
        assert scan.count() == 3


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
def test_a_path_that_is_another_one_in_a_uri_is_refused(tmp_path: Path, name: str) -> None:
    """pyiceberg wrote metadata into `a`, beside the data directory `a#b`."""
    (tmp_path / name).mkdir()
    with lake_in(tmp_path / name, "iceberg") as lake:
        lake.seal(0)
        with pytest.raises(LakeError, match="choose another --data-dir"):
            lake.publish()
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_catalog_that_is_away_is_an_error_of_its_table(tmp_path: Path) -> None:
    with lake_in(tmp_path, "iceberg") as lake:
        lake.catalog_uri = "http://127.0.0.1:9"
        lake.seal(0)
        with pytest.raises(StoreError, match=r"the catalog at http://127\.0\.0\.1:9 fails"):
            lake.publish()
        assert "the catalog at (hidden) fails" in lake.state().error
        assert lake.state().error_ms == BEGIN_MS
        lake.catalog_uri = ""
        lake.publish()
        assert_follows(lake)


def test_a_rest_catalog_has_the_same_table(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server, lake_in(tmp_path, "iceberg") as lake:
        lake.catalog_uri = server.uri
        story(lake)
        assert_follows(lake)
        assert lake.state().location == "kafka.orders in the REST catalog"
        assert any(each.startswith("POST /namespaces/kafka/tables/orders") for each in server.asked)
        lake.publishing().withdraw(NAMESPACE, TOPIC, "iceberg")
        assert not server.catalog.table_exists((NAMESPACE, TOPIC))


def test_an_answer_of_the_catalog_that_is_lost_doubles_nothing(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server, lake_in(tmp_path, "iceberg") as lake:
        lake.catalog_uri = server.uri
        lake.publish()
        lake.seal(0, 2)
        server.forget_answers = True
        with pytest.raises(LakeError, match="the catalog at http"):
            lake.publish()
        server.forget_answers = False
        lake.publish()
        assert_follows(lake)
        assert server.catalog.load_table((NAMESPACE, TOPIC)).scan().count() == 6


def lists_of(lake: Lake) -> int:
    """How many manifest lists the filer has: each is of a snapshot."""
    kept = [each.key for each in lake.store.list(f"topics/{NAMESPACE}/{TOPIC}/metadata/")]
    return len([key for key in kept if "/snap-" in key])


@pytest.mark.parametrize("step_ms", [-10 * YEAR_MS, 0, 10 * YEAR_MS])
def test_old_snapshots_go_with_their_metadata(tmp_path: Path, step_ms: int) -> None:
    """Data fault 5: whatever the wall clock says, by the time that has passed."""
    with lake_in(tmp_path, "iceberg") as lake:
        for _ in range(4):
            lake.seal(0)
            lake.publish()
        lake.step_ms = step_ms
        for passed_ms, snapshots, lists in ((KEEP_MS // 2, 4, 4), (KEEP_MS, 1, 4), (KEEP_MS, 1, 1)):
            lake.now_ms += passed_ms
            lake.publish(check=True)
            lake.publish(check=True)
            assert len(lake.iceberg().snapshots()) == snapshots
            assert lists_of(lake) == lists
        assert_follows(lake)


@pytest.mark.parametrize("step_ms", [KEEP_MS + 1, 10 * YEAR_MS])
def test_a_clock_set_ahead_makes_no_snapshot_old(tmp_path: Path, step_ms: int) -> None:
    """Data fault 5, its kind: snapshots seconds old were expired, and their metadata deleted."""
    with lake_in(tmp_path, "iceberg") as lake:
        for _ in range(4):
            lake.seal(0)
            lake.publish()
        lake.step_ms = step_ms
        for passed_ms in (1000, KEEP_MS // 2):
            lake.now_ms += passed_ms
            lake.publish(check=True)
            assert (len(lake.iceberg().snapshots()), lists_of(lake)) == (4, 4)


def test_a_table_made_anew_has_no_old_snapshots(tmp_path: Path) -> None:
    """Data fault 5, its kind: what was noted of a dropped table says nothing of the next one."""
    with lake_in(tmp_path, "iceberg") as lake:
        for _ in range(3):
            lake.seal(0)
            lake.publish()
        lake.drop()
        lake.now_ms += KEEP_MS - 1
        for _ in range(3):
            lake.seal(0)
            lake.publish(check=True)
        lake.now_ms += KEEP_MS // 2
        lake.publish(check=True)
        assert len(lake.iceberg().snapshots()) == 3


@pytest.mark.parametrize("catalog", ["sql", "rest"])
def test_the_times_of_a_table_never_go_back(tmp_path: Path, catalog: str) -> None:
    """Data fault 5, its kind: after a step back of an hour Java's readers refused the table:
    'Expected sorted snapshot log entries'."""
    with rest_catalog(tmp_path) as server, lake_in(tmp_path, "iceberg") as lake:
        lake.catalog_uri = server.uri if catalog == "rest" else ""
        lake.step_ms = YEAR_MS  # Of the test, whose pyiceberg has the right time.
        lake.now_ms = wall_ms()
        lake.seal(0, 2)
        lake.publish()
        lake.step_ms = 0
        lake.seal(1)
        lake.merge(0)
        lake.publish()
        lake.schema = '{"fields": [{"name": "c0", "type": "string"}]}'
        lake.publish()
        lake.now_ms += 2 * KEEP_MS
        lake.publish(check=True)
        lake.seal(0)
        lake.publish()
        metadata = lake.iceberg().metadata
        snapshots = [each.timestamp_ms for each in metadata.snapshot_log]
        written = [each.timestamp_ms for each in metadata.metadata_log]
        assert len(snapshots) > 1
        assert snapshots == sorted(set(snapshots))
        assert metadata.last_updated_ms >= snapshots[-1] > lake.now_ms
        if catalog == "sql":  # A REST catalog has its own clock.
            assert written == sorted(written)
            assert metadata.last_updated_ms >= written[-1] > lake.now_ms
