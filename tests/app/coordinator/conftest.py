"""What tests of a coordinator's server share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.coordinator.server_bench import Bench, Peer


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store.sqlite")
    yield bench
    bench.server.close()
    for peer in bench.peers:
        peer.sock.close()
    bench.store.close()


@pytest.fixture
def peer(bench: Bench) -> Peer:
    return Peer(bench)
