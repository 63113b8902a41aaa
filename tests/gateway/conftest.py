"""A bench for the coordinator's APIs, with a store of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.coordinator_bench import CoordinatorBench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[CoordinatorBench]:
    bench = CoordinatorBench(tmp_path / "store.sqlite")
    yield bench
    bench.close()
