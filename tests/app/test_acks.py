"""Acks: which of them wait for what. Broken disks are in test_bad_disks."""

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from shm.kernels.words import DURABILITY_DISK, DURABILITY_OS, WORD_TAIL, WORD_WRITTEN
from smq.app.acks import Acks
from smq.shard.produce import marks_of
from tests.shard.shard_bench import Appender, HeldSyncer, batch, new_shard, produce_request, topic

if TYPE_CHECKING:
    from smq.app.connection import Connection, Slot

DISK = {"smq.durability": "disk"}


class FakeClient:
    """What acks touch of a client."""

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()
        self.acks_due, self.is_held = 0, True

    @property
    def open_count(self) -> int:
        return sum(slot.is_open for slot in self.slots)


class Bench:
    """A shard, something appended to it that is not written, and its acks."""

    def __init__(self, directory: Path) -> None:
        self.shard = new_shard(directory, topic("one"), topic("safe", range(2, 3), DISK))
        self.log = self.shard.logs[0]
        self.log.syncer = HeldSyncer(self.log.memory)
        self.acks, self.client = Acks(self.shard), FakeClient()
        appender = Appender(self.shard)
        appender.run(produce_request({"one": {0: batch(b"x")}, "safe": {0: batch(b"y")}}))

    def queue(self, level: int) -> None:
        self.acks.queue(cast("Connection", self.client), b"answer", marks_of(self.log, level))

    def turn(self) -> int:
        """The end of a turn; how many clients have something to send."""
        self.acks.write()
        self.is_syncing = self.acks.show_synced()
        return len(self.acks.open())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_ack_is_open_once_what_it_is_for_is_written(bench: Bench) -> None:
    bench.queue(DURABILITY_OS)
    assert (bench.client.open_count, bench.client.acks_due) == (0, 1)
    assert bench.turn() == 1
    assert (bench.client.open_count, bench.client.acks_due) == (1, 0)
    assert bench.log.words[WORD_WRITTEN] == bench.log.words[WORD_TAIL] > 0
    assert bench.turn() == 0


def test_an_ack_of_disk_level_waits_for_the_sync(bench: Bench) -> None:
    bench.queue(DURABILITY_DISK)
    assert bench.turn() == 0
    assert bench.client.is_held
    assert bench.is_syncing
    cast("HeldSyncer", bench.log.syncer).release()
    assert bench.turn() == 1
    assert bench.is_syncing  # Who was just acknowledged may ask again at once.
    assert (bench.client.open_count, bench.client.is_held) == (1, False)
    assert bench.turn() == 0
    assert not bench.is_syncing


def test_a_client_is_held_until_the_last_of_its_acks(bench: Bench) -> None:
    bench.queue(DURABILITY_OS)
    bench.queue(DURABILITY_DISK)
    assert bench.turn() == 1
    assert bench.client.is_held
    cast("HeldSyncer", bench.log.syncer).release()
    bench.turn()
    assert (bench.client.open_count, bench.client.is_held) == (2, False)
