"""Fixtures for projects that test with pytest and have smq installed.

smq_broker           a fresh broker for each test
smq_session_broker   one for all tests of a session, which must use distinct topic names
"""

from typing import TYPE_CHECKING

import pytest

from smq.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from smq.testing.smq_broker import SmqBroker


@pytest.fixture
def smq_broker() -> "Iterator[SmqBroker]":
    """A fresh, empty broker; removed after the test."""
    with broker() as fresh:
        yield fresh


@pytest.fixture(scope="session")
def smq_session_broker() -> "Iterator[SmqBroker]":
    """One broker for the session (with xdist: for each of its processes)."""
    with broker() as shared:
        yield shared
