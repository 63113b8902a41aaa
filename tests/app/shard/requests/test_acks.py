"""Acks: which of them wait for what. Broken disks are in test_bad_disks."""

import errno
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import pytest

from shm.kernels.base.words import (
    DURABILITY_DISK,
    DURABILITY_OS,
    WORD_SYNCED,
    WORD_TAIL,
    WORD_WRITTEN,
)
from smq.app.shard.requests.acks import Acks
from smq.log.files.background import InlineBackground, JobLane
from smq.log.files.disk import OsDisk
from smq.log.files.segment import NoSegment, WalSegment
from smq.shard.produce import Produced, marks_of
from smq.testing.disk import FailingDisk
from smq.wire.records import Record, write_batch
from tests.log.logs import replace_background, replace_disk
from tests.shard.shard_bench import (
    SEGMENT_BYTES,
    Appender,
    HeldSyncer,
    batch,
    catalog,
    new_shard,
    produce_request,
    topic,
)

if TYPE_CHECKING:
    from smq.app.shard.connections.connection import Connection, Slot

T = TypeVar("T")
DISK = {"smq.durability": "disk"}


def numbered(sequence: int) -> bytes:
    """A batch of an idempotent producer."""
    records = [Record(0, 1000, None, b"%d" % sequence, ())]
    return write_batch(records, producer_id=9, producer_epoch=0, base_sequence=sequence)


class FakeClient:
    """What acks touch of a client."""

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()
        self.acks_due, self.is_held, self.is_closed = 0, True, False

    def close(self) -> None:
        self.is_closed = True

    @property
    def open_count(self) -> int:
        return sum(slot.is_open for slot in self.slots)


class Bench:
    """A shard, something appended to it that is not written, and its acks."""

    def __init__(self, directory: Path) -> None:
        self.shard = new_shard(directory, topic("one"), topic("safe", range(2, 3), DISK))
        self.log = self.shard.logs[0]
        self.log.syncs.syncer = HeldSyncer(self.log.memory)
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
    cast("HeldSyncer", bench.log.syncs.syncer).release()
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
    cast("HeldSyncer", bench.log.syncs.syncer).release()
    bench.turn()
    assert (bench.client.open_count, bench.client.is_held) == (2, False)


class OneAtATime(HeldSyncer):
    """Takes a segment when it has synced the one before, as a thread does."""

    def post(self, fd: int, upto: int) -> bool:
        return not self.busy() and super().post(fd, upto)

    def busy(self) -> bool:
        return bool(self._held)


def test_a_sync_that_the_sealer_wanted_goes_on_when_it_asks_no_more(tmp_path: Path) -> None:
    """A kernel left every turn to the loop meanwhile: a third of the requests were served."""
    shard = new_shard(tmp_path, topic("one"))
    [log], appender, acks = shard.logs.values(), Appender(shard), Acks(shard)
    syncer = log.syncs.syncer = OneAtATime(log.memory)
    while len(log.wal.segments) < 4:
        appender.append("one", 0, batch(b"x" * (SEGMENT_BYTES // 2)))
        acks.write()
    log.want_sync()
    while syncer.busy():
        syncer.release()
        acks.show_synced()
    assert log.words[WORD_SYNCED] == log.words[WORD_WRITTEN]
    assert not log.syncs.is_awaited()


# --- which log, and which sync -------------------------------------------------------------------


class HeldBackground(InlineBackground):
    """Jobs that are done when the test says so, or when they are collected."""

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []
        self.is_collected = False

    def collect(self) -> int:
        if self.is_collected:
            self.release()
        return 0

    def submit(
        self, lane: JobLane, job: Callable[[], T], done: Callable[[T | OSError], None]
    ) -> None:
        inline = super().submit
        self._held.append(lambda: inline(lane, job, done))

    def wait_a_job(self, _: JobLane) -> None:
        self._held.pop(0)()

    def release(self) -> None:
        while self._held:
            self._held.pop(0)()


class LogsBench:
    """A shard of two logs whose disks may fail, whose syncs and repairs wait for the test.

    Topic `one` is in log 0, `two` in log 1, `safe` has a partition in each and is of level `disk`.
    """

    def __init__(self, directory: Path) -> None:
        self.shard = new_shard(
            directory,
            topic("one"),
            topic("two", range(2, 3), logs=(1,)),
            topic("safe", range(3, 5), DISK, logs=(0, 1)),
            logs=2,
        )
        self.logs = list(self.shard.logs.values())
        self.disks = [FailingDisk(OsDisk()) for _ in self.logs]
        self.jobs = [HeldBackground() for _ in self.logs]
        for log, disk, jobs in zip(self.logs, self.disks, self.jobs, strict=True):
            replace_disk(log, disk)
            replace_background(log, jobs)
            log.syncs.syncer = HeldSyncer(log.memory)
        self.appender, self.acks = Appender(self.shard), Acks(self.shard)

    def append(self, **data: dict[int, bytes]) -> Produced:
        return self.appender.run(produce_request(data))

    def produce(self, **data: dict[int, bytes]) -> FakeClient:
        """A client that has sent these batches, by topic and partition, and waits."""
        client, produced = FakeClient(), self.append(**data)
        answers = bytes(produced.answers)
        self.acks.queue(cast("Connection", client), answers, produced.marks)
        return client

    def turn(self) -> None:
        self.acks.write()
        self.acks.show_synced()
        self.acks.open()
        self.acks.invariants()

    def sync(self, number: int) -> None:
        cast("HeldSyncer", self.logs[number].syncs.syncer).release()
        self.turn()

    def repair(self, number: int) -> None:
        self.jobs[number].release()
        self.turn()

    def high_watermark(self, number: int) -> int:
        led = self.shard.by_number(number)
        assert led is not None
        return led.offsets().high_watermark


@pytest.fixture
def two(tmp_path: Path) -> LogsBench:
    return LogsBench(tmp_path)


def test_an_ack_of_disk_level_waits_for_the_logs_it_was_appended_to_and_no_other(
    two: LogsBench,
) -> None:
    neighbour = two.produce(one={0: batch(b"x")})
    client = two.produce(safe={1: batch(b"x")})
    both = two.produce(safe={0: batch(b"x"), 1: batch(b"x")})
    two.turn()
    assert (neighbour.open_count, client.open_count) == (1, 0)
    two.sync(1)
    assert (client.open_count, both.open_count) == (1, 0)
    two.sync(0)
    assert both.open_count == 1


def test_a_batch_that_is_sent_again_has_the_log_synced_that_its_ack_waits_for(
    two: LogsBench,
) -> None:
    data = numbered(0)
    two.produce(safe={0: data})
    two.turn()
    two.sync(0)
    two.append(one={0: batch(b"x")})
    two.logs[0].write()  # As a turn of the kernel does, which wants no sync.
    again = two.produce(safe={0: data})
    two.turn()
    assert again.open_count == 0
    two.sync(0)
    assert again.open_count == 1


def test_a_batch_that_is_sent_again_waits_for_the_sync_of_the_first_one(two: LogsBench) -> None:
    data = numbered(0)
    first = two.produce(safe={0: data})
    two.turn()
    again = two.produce(safe={0: data})
    two.turn()
    assert (first.open_count, again.open_count) == (0, 0)
    two.sync(0)
    assert (first.open_count, again.open_count) == (1, 1)


def test_a_batch_that_is_sent_again_and_is_synced_is_acked_at_once(two: LogsBench) -> None:
    data = numbered(0)
    two.produce(safe={0: data})
    two.turn()
    two.sync(0)
    again = two.produce(safe={0: data})
    two.turn()
    assert again.open_count == 1


def test_the_repair_of_one_log_opens_no_ack_of_another(two: LogsBench) -> None:
    clients = [two.produce(one={0: batch(b"x")}), two.produce(two={0: batch(b"x")})]
    both = two.produce(one={0: batch(b"y")}, two={0: batch(b"y")})
    for disk in two.disks:
        disk.fail("write", 1)
    two.turn()
    assert [client.open_count for client in (*clients, both)] == [0, 0, 0]
    two.repair(0)
    assert [client.open_count for client in (*clients, both)] == [1, 0, 0]
    assert (two.high_watermark(1), two.high_watermark(2)) == (2, 0)
    two.repair(1)
    assert [client.open_count for client in (*clients, both)] == [1, 1, 1]
    assert two.high_watermark(2) == 2


def test_a_log_that_fails_holds_its_own_acks_and_no_others(two: LogsBench) -> None:
    client, other = two.produce(one={0: batch(b"x")}), two.produce(two={0: batch(b"x")})
    unknown = two.produce(none={0: batch(b"x")})
    two.disks[0].fail("write")
    two.turn()
    assert [each.open_count for each in (client, other, unknown)] == [0, 1, 1]
    refused = two.produce(one={0: batch(b"x")})
    two.turn()
    assert (client.open_count, refused.open_count) == (0, 1)
    two.repair(0)
    assert (client.is_closed, client.open_count) == (True, 0)
    assert [each.is_closed for each in (other, unknown, refused)] == [False] * 3


def test_an_ack_waits_for_the_sync_of_one_log_and_the_write_of_another(two: LogsBench) -> None:
    client = two.produce(safe={0: batch(b"x")}, two={0: batch(b"x")})
    two.disks[1].fail("write", 1)
    two.turn()
    two.sync(0)
    assert client.open_count == 0
    two.repair(1)
    assert client.open_count == 1


def test_an_ack_of_both_logs_is_never_given_when_one_stays_broken(two: LogsBench) -> None:
    client = two.produce(safe={0: batch(b"x")}, two={0: batch(b"x")})
    two.disks[1].fail("write")
    two.turn()
    two.repair(1)
    assert (client.is_closed, client.open_count) == (True, 0)
    two.sync(0)
    assert client.open_count == 0


def test_a_log_that_fails_while_a_request_is_appended_holds_what_it_has_taken(
    two: LogsBench,
) -> None:
    """The ring is full: the log is written in the midst of the request, which fails."""
    two.disks[0].fail("write", 1)
    clients = []
    while two.logs[0].failed is None:
        clients.append(two.produce(one={0: batch(b"x" * (SEGMENT_BYTES // 2))}))
    taken = clients[:-1]  # The last one is refused.
    assert len(taken) > 2
    two.turn()
    assert [each.open_count for each in clients] == [0] * len(taken) + [1]
    assert two.high_watermark(1) == 0
    two.repair(0)
    assert [each.open_count for each in clients] == [1] * len(clients)
    assert two.high_watermark(1) == len(taken)


def test_a_log_that_fails_shows_the_records_that_it_had_written_and_acknowledges(
    two: LogsBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged records were not visible until the log was repaired."""

    def full(_: int) -> WalSegment:
        raise NoSegment(errno.ENOSPC, "there is no space")

    clients = [two.produce(one={0: batch(b"x")})]
    two.turn()
    monkeypatch.setattr(two.logs[0].wal.files, "begin", full)
    clients += [two.produce(one={0: batch(b"x" * (SEGMENT_BYTES // 3))}) for _ in range(3)]
    two.turn()
    assert two.logs[0].failed is not None
    acknowledged = sum(client.open_count for client in clients)
    assert 1 < acknowledged < 4
    assert two.high_watermark(1) == acknowledged


def test_an_unwatched_batch_becomes_visible_after_the_repair(two: LogsBench) -> None:
    two.append(one={0: batch(b"x")})
    two.disks[0].fail("write", 1)
    two.turn()
    assert two.high_watermark(1) == 0
    two.repair(0)
    assert two.high_watermark(1) == 1


def test_a_repair_that_succeeds_at_last_shows_what_the_first_one_could_not(two: LogsBench) -> None:
    client = two.produce(one={0: batch(b"x")})
    two.disks[0].fail("write")
    two.turn()
    two.repair(0)
    assert client.is_closed
    two.disks[0].heal()
    two.logs[0].tend()
    two.repair(0)
    assert two.logs[0].failed is None
    assert two.high_watermark(1) == 1


def test_a_write_back_that_fails_is_known_in_the_turn_that_hears_of_it(two: LogsBench) -> None:
    """Nothing was written since the last repair, so no other one may begin."""
    two.shard.take_catalog(catalog(topic("one")), 2)  # No acks wait for syncs.
    client, log, jobs = two.produce(one={0: batch(b"x")}), two.logs[0], two.jobs[0]
    two.disks[0].fail("write", 1)
    two.turn()
    two.repair(0)
    assert (client.open_count, log.failed) == (1, None)

    def write_back_failed(_: OSError | None) -> None:
        log.health.fail_sync("a write-back failed")

    jobs.submit(JobLane.WRITE_BACK, lambda: None, write_back_failed)
    jobs.is_collected = True
    two.turn()
    assert log.failed == "a write-back failed"


def test_an_ack_is_given_though_no_topic_of_its_level_is_left(two: LogsBench) -> None:
    """Else it would hold all that its client has asked for afterwards."""
    client = two.produce(safe={0: batch(b"x")})
    two.turn()
    two.shard.take_catalog(catalog(topic("one")), 2)
    late = two.produce(one={0: batch(b"x")})
    two.turn()
    assert (client.open_count, late.open_count) == (0, 1)
    two.sync(0)
    assert client.open_count == 1
