"""One broker with SeaweedMQ's services for the tests of a file."""

from collections.abc import Iterator

import pytest

from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, Doors, opened


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with SmqBroker(tmp_path_factory.mktemp("agent"), SETTINGS) as broker, opened(broker) as found:
        yield found
