"""A shard's answers to our other processes, over a real socket."""

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from uuid import UUID

import pytest

from shm.kernels.base.words import P_HIGH_WATERMARK, WORD_SYNCED
from smq.app.process.clock import now
from smq.app.process.peers import Neighbour
from smq.app.shard.commands import BATCHES_BYTES_MAX, ShardCommands
from smq.log.files.background import BackgroundThread
from smq.log.files.checkpoint import Checkpoint
from smq.security.caller import Caller
from smq.shard.client_metrics import Push, kept_of
from smq.testing.disk import SlowDisk
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question
from smq.wire.internal.frames import KIND_COMMAND, InternalReader, encode_frame
from smq.wire.internal.messages import (
    FOR_SHARD,
    Attach,
    Batches,
    Ends,
    FindEnds,
    LogMemory,
    MarkCompacted,
    MarkSealed,
    Partitions,
    PartitionState,
    Pressure,
    RaiseLogStart,
    RawBatches,
    Unsealed,
)
from smq.wire.internal.telemetry import FindPush, ListPushes, PushedMetrics
from smq.wire.internal.transactions import NOT_WRITTEN, SyncLogs, WriteMarkers
from smq.wire.markers import Marker
from smq.wire.records import read_batches
from tests.app.fake_peers import TidyLoop, listen, turn_until
from tests.app.shard_client import FakePeers
from tests.shard.shard_bench import (
    MONOTONIC_MS,
    NOW_MS,
    SEGMENT_BYTES,
    Appender,
    HeldSyncer,
    batch,
    catalog,
    new_shard,
    topic,
)
from tests.shard.transactional_bench import Producers

NUMBER = 5  # Of the partition.
A = TypeVar("A")


class Bench:
    """A shard that leads one partition, and a process that asks it."""

    def __init__(self, directory: Path) -> None:
        self.loop, self.peers = TidyLoop(), FakePeers()
        self.shard = new_shard(directory, topic("one", range(NUMBER, NUMBER + 1)))
        self.log = self.shard.logs[0]
        self.appender = Appender(self.shard)
        self.path = directory / "shard.sock"
        listener = listen(self.path)
        self.loop.opened.append(listener)
        self.commands = ShardCommands(self.loop, self.shard, self.peers)  # type: ignore[arg-type]
        self.commands.listen(listener)
        self._asker = Neighbour(self.loop, self.path)

    def begin(self, question: Question[Any]) -> list[bytes]:
        """Ask; the answer comes into the list."""
        return self.begin_raw(partial(encode_question, question=question))

    def begin_raw(self, encode: Callable[[int], bytes]) -> list[bytes]:
        answers: list[bytes] = []
        self._asker.ask(encode, answers.append)
        return answers

    def _await(self, answers: list[bytes]) -> bytes:
        turn_until(self.loop, lambda: bool(answers))
        return answers[0]

    def answer_to(self, question: Question[A]) -> A | Failed:
        return decode_answer(type(question), self._await(self.begin(question)).partition(b"\n")[0])

    def answer_to_raw(self, body: bytes) -> Failed:
        """What something is answered with that is no question."""
        frame = partial(encode_frame, kind=KIND_COMMAND, body=body)
        answer = decode_answer(Partitions, self._await(self.begin_raw(frame)))
        assert isinstance(answer, Failed)
        return answer

    def ask(self, question: Question[A]) -> A:
        answer = self.answer_to(question)
        assert not isinstance(answer, Failed), answer
        return answer

    def batches(self, question: Batches) -> bytes:
        """Raw batches, whose answer says how many bytes they are."""
        line, _, data = self._await(self.begin(question)).partition(b"\n")
        assert decode_answer(Batches, line) == RawBatches(len(data))
        return data

    def partitions(self) -> list[PartitionState]:
        return self.ask(Partitions()).partitions

    def append(self, *values: bytes) -> int:
        return self.appender.append("one", 0, batch(*values))

    def close(self) -> None:
        self._asker.close()
        for link in list(self.commands._links):
            link.close()
        self.loop.close()
        self.log.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_partitions_say_what_is_not_sealed_and_how_full_the_wal_is(bench: Bench) -> None:
    bench.append(b"a", b"b")
    answer = bench.ask(Partitions())
    unsealed_bytes = len(batch(b"a", b"b"))
    assert bench.partitions() == [
        PartitionState(NUMBER, 0, 0, 0, 2, unsealed_bytes, MONOTONIC_MS, 0, 2)
    ]
    assert answer.wal_bytes == bench.log.wal.files.allocated_bytes
    assert answer.wal_bytes_max == bench.shard.config.wal_bytes_max


def test_partitions_returns_only_those_changed_since_a_version_of_the_same_life(
    bench: Bench,
) -> None:
    first = bench.ask(Partitions())
    asked = Partitions(first.life, first.version)
    assert bench.ask(asked).partitions == []
    bench.append(b"a")
    assert len(bench.ask(asked).partitions) == 1
    assert bench.ask(Partitions(first.life - 1, first.version)).since == 0


def test_batches_come_raw_behind_a_line_of_json(bench: Bench) -> None:
    bench.append(b"a")
    bench.append(b"b", b"c")
    [found] = read_batches(bench.batches(Batches(NUMBER, 1, BATCHES_BYTES_MAX)))
    assert [(each.offset, each.value) for each in found.records()] == [(1, b"b"), (2, b"c")]


def test_batches_that_are_on_the_disk_are_read_while_others_are_answered(bench: Bench) -> None:
    count, value = 30, b"v" * (SEGMENT_BYTES // 3)
    for i in range(count):
        bench.append(b"%d" % i + value)
    disk, background = SlowDisk(), BackgroundThread(lambda: None)
    bench.log.wal._disk, bench.log.wal._background = disk, background
    bench.loop.turn_ends.append(background.collect)  # type: ignore[arg-type]
    with disk.waiting():
        answers = bench.begin(Batches(NUMBER, 0, BATCHES_BYTES_MAX))
        assert bench.partitions()
        assert not answers
    turn_until(bench.loop, lambda: bool(answers))
    records = [r for b in read_batches(answers[0].partition(b"\n")[2]) for r in b.records()]
    assert [each.value for each in records] == [b"%d" % i + value for i in range(count)]


def test_a_damaged_batch_that_had_to_be_loaded_is_refused_by_name(bench: Bench) -> None:
    for _ in range(30):
        bench.append(b"v" * (SEGMENT_BYTES // 3))
    bench.log.wal._disk = SlowDisk()
    segment = bench.log.wal.segments[0]
    with segment.path.open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    answer = bench.answer_to(Batches(NUMBER, 0, BATCHES_BYTES_MAX))
    assert isinstance(answer, Failed)
    assert str(segment.path) in answer.error


def test_batches_wait_until_the_disk_has_them(bench: Bench) -> None:
    bench.log.syncs.syncer = syncer = HeldSyncer(bench.log.memory)
    bench.append(b"a")
    answers = bench.begin(Batches(NUMBER, 0, 1 << 20))
    for _ in range(5):
        bench.loop.run_once(0.01)
    assert not answers
    assert bench.log.words[WORD_SYNCED] < bench.log.tail
    syncer.release()
    turn_until(bench.loop, lambda: bool(answers))
    assert answers[0].startswith(b'{"ok"')


def test_batches_of_a_log_that_has_failed_are_refused_at_once(bench: Bench) -> None:
    """Data fault 8, its kind: the sealer gives up and asks again, and each question stayed."""
    bench.log.syncs.syncer = HeldSyncer(bench.log.memory)
    bench.append(b"a")
    answers = bench.begin(Batches(NUMBER, 0, 1 << 20))
    for _ in range(5):
        bench.loop.run_once(0.01)
    assert not answers
    bench.log.health.fail("EIO", 0)
    turn_until(bench.loop, lambda: bool(answers))
    assert decode_answer(Batches, answers[0]) == Failed("log 0: EIO")


def test_batches_returns_invisible_records_on_request(bench: Bench) -> None:
    bench.shard.take_catalog(
        catalog(topic("one", range(NUMBER, NUMBER + 1), {"smq.durability": "disk"})), 2
    )
    bench.log.syncs.syncer = HeldSyncer(bench.log.memory)
    bench.append(b"a")
    wanted = Batches(NUMBER, 0, 1 << 20, synced=False)
    assert bench.batches(wanted) == b""
    [found] = read_batches(bench.batches(replace(wanted, shown=False)))
    assert [each.value for each in found.records()] == [b"a"]


def test_batches_do_not_wait_for_what_is_behind_them(bench: Bench) -> None:
    first = Batches(NUMBER, 0, bytes_max=1)
    bench.append(b"on the disk")
    synced = bench.batches(first)
    bench.log.syncs.syncer = HeldSyncer(bench.log.memory)
    bench.append(b"not yet")
    assert bench.log.words[WORD_SYNCED] < bench.log.tail
    assert bench.batches(first) == synced


def test_sealed_records_no_longer_count_as_unsealed(bench: Bench) -> None:
    bench.append(b"a", b"b")
    bench.shard.moved.clear()
    bench.log.partitions.table[0, P_HIGH_WATERMARK] = 1
    assert bench.ask(MarkSealed(NUMBER, end=2)) is True
    assert [(each.sealed_end, each.unsealed_bytes) for each in bench.partitions()] == [(2, 0)]
    assert bench.shard.moved, "who waits looks at what is visible now"
    bench.shard.invariants()


def test_a_compacted_end_is_durable_and_the_log_is_not_read_below_it(bench: Bench) -> None:
    """Data fault 22."""
    bench.append(b"a", b"b", b"c")
    for end in (2, 1):  # The second comes late.
        assert bench.ask(MarkCompacted(NUMBER, end)) is True
        assert bench.log.find(NUMBER, 1, 3, 1 << 20) is None
        assert bench.log.find(NUMBER, 2, 3, 1 << 20) is not None
        kept, _ = Checkpoint.load(bench.log.directory)
        assert kept is not None
        assert [each.compacted_end for each in kept.partitions if each.number == NUMBER] == [2]
    bench.shard.invariants()


def test_retention_moves_the_start(bench: Bench) -> None:
    bench.append(b"a", b"b")
    assert bench.ask(RaiseLogStart(NUMBER, offset=1)) is True
    [partition] = bench.partitions()
    assert (partition.start, partition.sealed_end) == (1, 1)


def test_unsealed_lists_the_full_segments_until_they_are_sealed(bench: Bench) -> None:
    for _ in range(4):
        bench.append(bytes(SEGMENT_BYTES // 3))
    unsealed = bench.ask(Unsealed(NUMBER))
    [(end, newest_ms, size)] = unsealed.parts
    assert 0 < end < 4
    assert newest_ms == NOW_MS
    assert size > SEGMENT_BYTES // 3
    bench.ask(MarkSealed(NUMBER, end))
    assert bench.ask(Unsealed(NUMBER)).parts == []


def test_ends_are_what_is_sealed_and_what_is_appended(bench: Bench) -> None:
    bench.append(b"a", b"b")
    assert bench.ask(FindEnds(NUMBER)) == Ends(0, 2)
    bench.ask(MarkSealed(NUMBER, end=2))
    bench.append(b"c")
    assert bench.ask(FindEnds(NUMBER)) == Ends(2, 3)


def test_attach_gives_the_memory_of_the_log(bench: Bench) -> None:
    bench.log.memory.fd = os.memfd_create("a-log", os.MFD_CLOEXEC)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(bench.path))
        sock.sendall(encode_question(7, Attach(log=0)))
        sock.setblocking(False)
        received: list[tuple[bytes, list[int]]] = []

        def arrived() -> bool:
            try:
                data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 1)
            except BlockingIOError:
                return False
            received.append((data, fds))
            return True

        turn_until(bench.loop, arrived)
    [(data, [fd])] = received
    [frame] = InternalReader().receive(data)
    assert frame.id == 7
    assert decode_answer(Attach, frame.body) == LogMemory(bench.log.memory.layout.total_bytes)
    assert os.path.sameopenfile(fd, bench.log.memory.fd)
    os.close(fd)
    os.close(bench.log.memory.fd)
    bench.log.memory.fd = -1


def marker(*, committed: bool, epoch: int = 0) -> WriteMarkers:
    return WriteMarkers(7, epoch, committed, 0, 1, [NUMBER, 99])


def test_markers_are_answered_when_they_are_durable_and_again_without_another(
    bench: Bench,
) -> None:
    producers = Producers(bench.shard)
    producers.write([b"a"], (7, 0))
    for _ in range(2):
        answers = bench.begin(marker(committed=True))

        def answered(answers: list[bytes] = answers) -> bool:
            producers.end_turn()
            return bool(answers)

        turn_until(bench.loop, answered)
        assert decode_answer(WriteMarkers, answers[0]) == [0, 3]
    led = bench.shard.by_number(NUMBER)
    assert led is not None
    assert led.offsets().last_stable == led.offsets().log_end == 2


def test_the_sealer_gets_empty_batches_for_what_was_aborted_and_others_get_all(
    bench: Bench,
) -> None:
    producers = Producers(bench.shard)
    producers.write([b"aborted", b"too"], (7, 0))
    producers.write([b"committed"], (8, 0))
    for producer, committed in ((7, False), (8, True)):
        producers.end(NUMBER, Marker(producer, 0, committed, coordinator_epoch=0))
    producers.write([b"open"], (7, 0), 2)
    counts = {}
    for shown in (True, False):
        answers = bench.begin(Batches(NUMBER, 0, BATCHES_BYTES_MAX, shown=shown))
        turn_until(bench.loop, lambda: bool(answers))  # noqa: B023
        data = answers[0].partition(b"\n")[2]
        counts[shown] = [(each.last_offset, each.record_count) for each in read_batches(data)]
    assert counts[True] == [(1, 0), (2, 1), (3, 0), (4, 1)], "the marker of the aborted one too"
    assert counts[False] == [(1, 2), (2, 1), (3, 1), (4, 1), (5, 1)]


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_sync_logs_syncs_a_log_at_every_durability_level(tmp_path: Path, durability: str) -> None:
    bench = Bench(tmp_path)
    bench.shard.take_catalog(
        catalog(topic("one", range(NUMBER, NUMBER + 1), {"smq.durability": durability})), 2
    )
    held = bench.log.syncs.syncer = HeldSyncer(bench.log.memory)
    bench.appender.append("one", 0, batch(b"x"))
    answers = bench.begin(SyncLogs(7, [NUMBER], [-1]))
    for _ in range(20):
        bench.loop.run_once(0.001)
    assert answers == []

    def answered() -> bool:
        held.release()
        bench.log.push_sync()
        return bool(answers)

    turn_until(bench.loop, answered)
    assert decode_answer(SyncLogs, answers[0]) == []
    bench.close()


@pytest.mark.parametrize(("durability", "may_lose"), [("memory", True), ("disk", False)])
def test_sync_logs_returns_the_partitions_that_may_have_lost_records(
    tmp_path: Path, durability: str, *, may_lose: bool
) -> None:
    """Data fault 21: the log alone does not show what is missing at its end."""
    bench = Bench(tmp_path)
    one = topic("one", range(NUMBER, NUMBER + 1), {"smq.durability": durability})
    bench.shard.take_catalog(catalog(one), 2)
    bench.log.losses.begin(4, before=None, is_damaged=False)  # Nobody had kept the memory.
    assert bench.ask(SyncLogs(7, [NUMBER], [3])) == ([NUMBER] if may_lose else [])
    assert bench.ask(SyncLogs(7, [NUMBER], [4])) == []
    assert bench.ask(SyncLogs(7, [NUMBER], [NOT_WRITTEN])) == []
    bench.close()


def test_a_level_that_rises_does_not_hide_what_was_lost_before(tmp_path: Path) -> None:
    """Data fault 21, its kind: an administrator made the topic `disk` after the loss, and half of a
    transaction was committed."""
    bench = Bench(tmp_path)
    configs = {"smq.durability": "os"}
    bench.shard.take_catalog(catalog(topic("one", range(NUMBER, NUMBER + 1), configs)), 2)
    bench.log.losses.begin(4, before=3, is_damaged=False)  # Generation 3 could not note itself.
    configs = {"smq.durability": "disk"}
    bench.shard.take_catalog(catalog(topic("one", range(NUMBER, NUMBER + 1), configs)), 3)
    assert bench.ask(SyncLogs(7, [NUMBER], [3])) == [NUMBER]
    assert bench.ask(SyncLogs(7, [NUMBER], [4])) == []
    bench.close()


@pytest.mark.parametrize("is_synced", [True, False])
def test_markers_of_a_transaction_with_disk_topics_are_answered_when_they_are_on_disk(
    tmp_path: Path, is_synced: bool
) -> None:
    bench = Bench(tmp_path)
    held = bench.log.syncs.syncer = HeldSyncer(bench.log.memory)
    producers = Producers(bench.shard)
    producers.write([b"a"], (7, 0))
    asked = replace(marker(committed=True), is_synced=is_synced)
    answers = bench.begin(asked)
    for _ in range(20):
        bench.loop.run_once(0.001)
        producers.end_turn()
    assert bool(answers) is not is_synced

    def answered() -> bool:
        held.release()
        bench.log.push_sync()
        return bool(answers)

    turn_until(bench.loop, answered)
    assert decode_answer(WriteMarkers, answers[0]) == [0, 3]
    bench.close()


def test_each_question_of_the_table_has_a_handler_of_its_type(bench: Bench) -> None:
    handlers = bench.commands.handlers
    assert set(handlers) == set(FOR_SHARD.values())
    assert all(get_type_hints(handlers[kind])["asked"] is kind for kind in handlers)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"do": "dance"}', "there is no command 'dance'"),
        (b"{}", "there is no command None"),
        (b"{", "it is no JSON"),
        (b'{"do": "mark_sealed", "number": 5}', "mark_sealed is malformed: end missing"),
    ],
)
def test_a_malformed_command_is_answered_with_a_sentence(
    bench: Bench, body: bytes, why: str
) -> None:
    assert why in bench.answer_to_raw(body).error
    assert bench.partitions()  # The link lives on.


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (MarkSealed(99, end=1), "partition 99 is not led here"),
        (RaiseLogStart(99, offset=1), "partition 99 is not led here"),
        (Unsealed(99), "partition 99 is not led here"),
        (Attach(99), "there is no log 99 here"),
        (Batches(99, offset=0, bytes_max=1), "partition 99 is not led here"),
        (SyncLogs(7, [NUMBER, 99], [0, 0]), "partition 99 is not led here"),
    ],
)
def test_a_command_that_fails_is_answered_with_a_sentence(
    bench: Bench, question: Question[Any], why: str
) -> None:
    assert bench.answer_to(question) == Failed(why)
    assert bench.partitions()  # The link lives on.


def test_the_sealer_is_called_when_the_wal_has_grown_too_much(bench: Bench) -> None:
    bench.commands.watch_growth()
    assert not bench.peers.asked
    bench.log.wal.files.bytes_max = bench.log.wal.files.allocated_bytes
    while bench.log.tail <= bench.log.wal.segments[0].end // 2:
        bench.append(b"x" * 1000)
    bench.commands.watch_growth()
    assert not bench.peers.asked  # No segment has been begun since.
    bench.commands.watch_space()
    assert [command for command, _ in bench.peers.asked] == [Pressure()]


def test_pushed_metrics_are_listed_and_given_inflated(bench: Bench) -> None:
    metrics, pushed_at = bench.shard.client_metrics, now()
    told = metrics.subscribe(UUID(int=100), "app", Caller("10.0.0.9"), pushed_at.monotonic_ms - 1)
    pushed = Push(told.subscription_id, is_last=False, compression=0, metrics=b"metrics")
    caller = Caller("10.0.0.9")
    instance = metrics.begin_push(told.id, "app", caller, pushed, pushed_at.monotonic_ms)
    metrics.end_push(instance, pushed, kept_of(pushed))
    [client] = bench.ask(ListPushes(9))
    assert (client.instance, client.client_id, client.host) == (str(told.id), "app", "10.0.0.9")
    assert (client.push_count, client.pushed_bytes) == (1, 7)
    assert abs(client.push_ms - pushed_at.wall_ms) < 1000
    assert bench.ask(FindPush(client.instance)) == PushedMetrics(7)
    assert bench.ask(FindPush(str(UUID(int=7)))) == PushedMetrics(0)
