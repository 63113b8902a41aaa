"""One broker for a module's tests, and a client of it on each transport."""

from collections.abc import Iterator
from itertools import count

import pytest

import smq
from smq.testing import broker
from smq.testing.smq_broker import SmqBroker

TRANSPORTS = ("shared memory", "kafka")
_names = count()


@pytest.fixture(scope="module")
def running() -> Iterator[SmqBroker]:
    with broker(shards=2) as started:
        yield started


@pytest.fixture(params=TRANSPORTS)
def client(request: pytest.FixtureRequest, running: SmqBroker) -> Iterator[smq.Client]:
    with smq.connect(running.bootstrap, transport=request.param, timeout_s=10) as connected:
        assert connected.transport == request.param
        yield connected


@pytest.fixture
def topic(client: smq.Client) -> str:
    """A topic of its own for each test: three partitions on two shards."""
    name = f"topic-{next(_names)}"
    client.create_topic(name, 3)
    return name
