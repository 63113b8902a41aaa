"""A coordinator over a store in a directory of its own, with a clock that tests turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.coordinator_driver import CoordinatorDriver
from tests.coordinator.group_driver import Driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[CoordinatorDriver]:
    driver = CoordinatorDriver(tmp_path / "store.sqlite")
    yield driver
    driver.close()


@pytest.fixture
def g() -> Driver:
    """An empty group."""
    return Driver()


@pytest.fixture
def two(g: Driver) -> Driver:
    """A stable group of a, the leader, and b."""
    g.stable("a", "b")
    return g
