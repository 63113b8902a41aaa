"""A broker's counts of its reads: from the ring, the WAL, sealed segments, and their cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.app.http_client import ask
from tests.broker.one_topic import FILLER_BYTES, SETTINGS, OneTopic

pytestmark = pytest.mark.timeout(120)
RING_BYTES = 4 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS | {"http.port": "0"}) as broker:
        yield broker


def counted(broker: SmqBroker) -> list[float]:
    """Parts of answers from the WAL, from sealed segments, and from the cache of those."""
    page = ask(broker, "GET", "/metrics").body.decode()
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    names = ("fetches_from_wal", "fetches_from_sealed", "sealed_cache_hits")
    return [found[f"smq_log_{name}_total"] for name in names]


def wait_counted(broker: SmqBroker, expected: list[float]) -> None:
    """Until a page says so: many scrapers get one and the same for a moment."""
    eventually(lambda: counted(broker) == expected, f"the page has {expected}")


def test_a_fetch_of_records_that_left_the_ring_counts_as_a_wal_read(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "t", {"smq.seal.ms": "600000"})
        topic.append_filler(1)
        topic.fetch(0)
        wait_counted(broker, [0, 0, 0])
        topic.append_filler(2 * RING_BYTES // FILLER_BYTES)
        topic.fetch(0, bytes_max=1)
        wait_counted(broker, [1, 0, 0])


def test_a_second_read_of_a_sealed_segment_counts_as_a_hit_of_the_cache(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        topic = OneTopic(broker, cluster, "t")
        topic.append_filler(2)
        topic.seal_and_recycle(2)
        topic.fetch(0)
        wait_counted(broker, [0, 1, 0])
        topic.fetch(0)
        topic.fetch(0)
        wait_counted(broker, [0, 3, 2])
