"""The examples of SeaweedMQ's services against a broker: twice, as groups go on where they were."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS
from tests.clients import toolchain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RUN_SECONDS_MAX = 100
STORY = "3 orders are in the log\nNL has bought for 42.50 euros\n"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path, SETTINGS) as found:
        yield found


def told(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_orders_are_published_and_billed_in_python(broker: SmqBroker) -> None:
    command = [sys.executable, "-m", "examples.seaweedmq.orders", broker.status().agent]
    assert [told(command), told(command)] == [STORY, STORY]
    assert records_of(broker) == 6


@pytest.mark.clients
def test_orders_are_published_and_billed_in_go(broker: SmqBroker) -> None:
    status = broker.status()
    command = [*toolchain.go_example("seaweedmq"), status.grpc, status.agent]
    assert [told(command), told(command)] == [STORY, STORY]
    assert records_of(broker) == 6


def records_of(broker: SmqBroker) -> int:
    """How many orders Kafka's clients see."""
    with broker.connect() as client:
        return sum(each.high_water for each in client.offsets("shop.orders").values())
