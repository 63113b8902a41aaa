"""What holds for all tests: no property test is timed, for machines are slow when they are busy.
What a verb sets for its process does not outlast a test."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("smq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("smq")


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Verbs that write a store close what they make: the next test's files are open again."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
