"""A connection to the broker of a test."""

from collections.abc import Iterator

import pytest

from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker


@pytest.fixture
def cluster(broker: SmqBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster
