"""A bench for the coordinator's APIs, with a topic `t` of three partitions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import make_topic


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[CoordinatorBench]:
    bench = CoordinatorBench(tmp_path / "store.sqlite")
    make_topic(bench)
    yield bench
    bench.close()
