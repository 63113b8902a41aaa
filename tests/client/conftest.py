"""A fake Kafka of two nodes, and the client's view of it."""

from collections.abc import Iterator

import pytest

from smq.client.kafka.cluster import Cluster
from tests.client.fake_kafka import FakeKafka, fake_kafka


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with fake_kafka(node_count=2) as fake:
        yield fake


@pytest.fixture
def cluster(kafka: FakeKafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap, deadline_seconds=5) as connected:
        yield connected
