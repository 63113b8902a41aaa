from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.transactions.transactions_driver import TransactionsDriver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[TransactionsDriver]:
    driver = TransactionsDriver(tmp_path / "store.sqlite")
    yield driver
    driver.close()
