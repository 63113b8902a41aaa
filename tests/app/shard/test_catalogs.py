"""The catalogs of a shard, and what comes with the first one."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from shm.catalog import CatalogBlock
from smq.app.shard.catalogs import Catalogs
from smq.log.files.background import InlineBackground, JobLane
from smq.log.files.checkpoint import Checkpoint
from smq.model.config import Config
from smq.model.segments import KnownEnds
from smq.shard.led import Led
from smq.shard.shard import Shard
from tests.shard.shard_bench import SECRET, catalog, new_log, topic

T = TypeVar("T")


class HeldBackground(InlineBackground):
    """Runs its jobs when the test says so, as a slow disk does."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []

    def submit(
        self, lane: JobLane, job: Callable[[], T], done: Callable[[T | OSError], None]
    ) -> None:
        submit = super().submit
        self._held.append(lambda: submit(lane, job, done))

    def release(self) -> None:
        while self._held:
            self._held.pop(0)()


class Bench:
    """A shard with log 0, and what its manifest is asked."""

    def __init__(self, directory: Path, *known: KnownEnds) -> None:
        self.directory, self.background = directory / "0", HeldBackground()
        self.shard = Shard(1, Config(), {0: new_log(directory)}, lambda _: [], SECRET)
        log = self.shard.logs[0]
        log.background = log.freeing._background = self.background
        self.block = CatalogBlock.create(1 << 16)
        self.events: list[str] = []
        self._known = known
        self.catalogs = Catalogs(
            self.block, self.shard, self._ends, lambda: self.events.append("sync"), lambda: 5
        )

    def _ends(self) -> tuple[KnownEnds, ...]:
        self.events.append("ends")
        return self._known

    def publish(self, *names: str) -> None:
        topics = (topic(name, range(i, i + 1)) for i, name in enumerate(names, 1))
        self.block.publish(catalog(*topics).encode())

    def lets_in(self) -> bool:
        return self.catalogs.are_known

    def end(self, name: str) -> int:
        found = self.shard.find_named(name, 0)
        assert isinstance(found, Led)
        return found.offsets().log_end


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, KnownEnds(1, 0, 500, 0), KnownEnds(2, 0, 0, 0))


def test_clients_wait_until_a_checkpoint_has_the_ends_that_the_log_had_lost(bench: Bench) -> None:
    assert not bench.catalogs.take()
    assert not bench.lets_in()
    bench.publish("lost", "empty")
    assert bench.catalogs.take()
    assert bench.events == ["ends", "sync"]
    assert (bench.end("lost"), bench.end("empty")) == (500, 0)
    assert not bench.lets_in()
    bench.background.release()
    assert bench.lets_in()
    checkpoint, _ = Checkpoint.load(bench.directory)
    assert checkpoint is not None
    assert [(each.number, each.log_end) for each in checkpoint.partitions] == [(1, 500), (2, 0)]
    [notice] = bench.shard.logs[0].notices
    assert "partitions ended here before what is sealed of them" in notice


def test_only_the_first_catalog_comes_with_ends(bench: Bench) -> None:
    bench.publish("lost")
    bench.catalogs.take()
    bench.publish("lost", "new")
    assert bench.catalogs.take()
    assert not bench.catalogs.take()
    assert bench.events == ["ends", "sync"]
    assert set(bench.shard.catalog.by_name) == {"lost", "new"}


def test_clients_do_not_wait_for_a_log_that_has_lost_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, KnownEnds(1, 0, 0, 0))
    bench.publish("kept")
    assert bench.catalogs.take()
    assert bench.lets_in()
    assert bench.events == ["ends"]
    assert bench.shard.logs[0].notices == []
