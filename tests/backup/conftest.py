"""Every log that a test started is closed after it, as a clean stop does."""

from collections.abc import Iterator

import pytest

from tests.log.logs import started


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for log in started:
        log.close()
    started.clear()
