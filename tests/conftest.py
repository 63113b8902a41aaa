"""What holds for all tests: no property test is timed, for machines are slow when they are busy.
What a verb sets for its process does not outlast a test."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.suite import HALVES, left_out, may_hold_slower

settings.register_profile("smq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("smq")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would walk all that was imported so far, again
    and again. What is there in the end stays to the end: no later pass of the collector walks it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The slower half imports the fifth of the files that has tests of its marks."""
    if config.option.markexpr != HALVES["slower"].marks or collection_path.suffix != ".py":
        return None
    return None if may_hold_slower(collection_path) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before any is deselected: no half leaves a test out that the other does not run."""
    tests = (
        (each.path, each.nodeid, {mark.name for mark in each.iter_markers()}) for each in items
    )
    if lost := left_out(tests):
        raise pytest.UsageError(f"name the mark in the file itself, as mark.slow: {lost}")


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Verbs that write a store close what they make: the next test's files are open again."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
