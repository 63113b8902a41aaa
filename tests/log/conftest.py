"""Every log that a test started is closed after it."""

from collections.abc import Iterator

import pytest

from tests.log.logs import started


@pytest.fixture(autouse=True)
def closed_logs() -> Iterator[None]:
    yield
    while started:
        log = started.pop()
        log.background.wait()
        log.wal.close()
