"""The broker under test, and the tests' questions to it without a foreign client."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smq.testing.kafka import Kafka
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqBroker

# `SMQ_TEST_BROKER=kafka` runs the same tests against Apache Kafka: that is how we know of a failing
# one whether the test is wrong or we are.
WHICH = os.environ.get("SMQ_TEST_BROKER", "smq")


@contextmanager
def running(directory: Path) -> Iterator[Broker]:
    """The broker under test; ours with two shards, so that partitions have different leaders."""
    with _started(directory) as broker:
        yield broker


def _started(directory: Path) -> Broker:
    return Kafka(directory) if WHICH == "kafka" else SmqBroker(directory, {"shards": "2"})
