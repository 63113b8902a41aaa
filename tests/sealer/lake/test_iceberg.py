"""Tests of Iceberg tables only. tests/sealer/lake/test_publish.py has the rest."""

from pathlib import Path

import pytest

from smq.model.errors import StoreError
from smq.sealer.lake.errors import LakeError
from tests.sealer.lake.lake_kit import BEGIN_MS, NAMESPACE, TOPIC, assert_follows, lake_in, story
from tests.sealer.lake.rest_catalog import rest_catalog


def test_a_filter_reads_few_files(tmp_path: Path) -> None:
    with lake_in(tmp_path, "iceberg") as lake:
        lake.seal(0, 4)
        lake.seal(1, 4)
        lake.publish()
        scan = lake.iceberg().scan(row_filter="partition = 1 and _offset < 3")
        assert len(list(scan.plan_files())) == 1
        assert scan.count() == 3


def test_a_catalog_that_is_away_is_an_error_that_names_it(tmp_path: Path) -> None:
    with lake_in(tmp_path, "iceberg") as lake:
        lake.catalog_uri = "http://127.0.0.1:9"
        lake.seal(0)
        with pytest.raises(StoreError, match=r"the catalog at http://127\.0\.0\.1:9 fails"):
            lake.publish()
        assert "127.0.0.1:9" in lake.state().error
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


def test_old_snapshots_go_with_their_metadata(tmp_path: Path) -> None:
    with lake_in(tmp_path, "iceberg") as lake:
        for _ in range(4):
            lake.seal(0)
            lake.publish()
        assert len(lake.iceberg().snapshots()) == 4
        lake.now_ms = BEGIN_MS * 2  # Long after the test, whose files have its time.
        lake.publish(check=True)
        assert_follows(lake)
        assert len(lake.iceberg().snapshots()) == 1
        kept = [each.key for each in lake.store.list(f"topics/{NAMESPACE}/{TOPIC}/metadata/")]
        assert len([key for key in kept if "/snap-" in key]) == 1
