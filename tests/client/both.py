"""One broker for a module's tests, a client of it on each transport, and waits for records."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

import smq
from smq.testing import broker
from smq.testing.smq_broker import SmqBroker

WAIT_SECONDS = 20.0
NAP_SECONDS = 2 * WAIT_SECONDS
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


def say_when_asleep(consumer: smq.Consumer, asleep: Callable[[], object]) -> None:
    """Have this called when the consumer has gone to sleep; then only what wakes it ends that."""

    def nap_seconds(_timeout_s: float) -> float:
        asleep()
        return NAP_SECONDS

    consumer.nap_seconds = nap_seconds  # type: ignore[method-assign, assignment]
