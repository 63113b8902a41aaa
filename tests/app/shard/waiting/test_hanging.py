"""Hanging transactions: the shard asks the coordinator and aborts unknown ones."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.base.words import FLAG_READ_ONLY, P_FLAGS
from smq.app.process.clock import replaced
from smq.app.shard.waiting import hanging
from smq.app.shard.waiting.hanging import ASK_AFTER_MS, ASK_EVERY_MS, Hanging
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import FindTransactions, OpenProducer
from smq.wire.markers import Marker
from tests.app.shard_client import FakePeers
from tests.shard.shard_bench import NOW, new_shard, topic
from tests.shard.transactional_bench import Producers

NUMBER = 1
A, B = (7, 0), (8, 4)


class Bench:
    """A shard in which two transactions are open since the year 2020, and its coordinator."""

    def __init__(self, directory: Path) -> None:
        self.shard = new_shard(directory, topic("one"))
        self.log, self.peers = self.shard.logs[0], FakePeers()
        self.producers = Producers(self.shard)
        self.producers.write([b"a"], A)
        self.producers.write([b"b"], B)
        self.hanging = Hanging(self.shard, self.peers)  # type: ignore[arg-type]

    def answer(self, said: list[bool] | Failed) -> None:
        [(question, answered)] = self.peers.asked_coordinator
        assert question == FindTransactions([OpenProducer(*A), OpenProducer(*B)])
        self.peers.asked_coordinator.clear()
        answered(said)
        self.producers.end_turn()

    def open(self) -> list[int]:
        return [each.producer_id for each in self.log.transactions.opened()]


class SetClocks:
    """Both clocks, as a test sets them."""

    def __init__(self) -> None:
        self.monotonic_ms, self.wall_ms = NOW


@pytest.fixture
def clocks() -> Iterator[SetClocks]:
    clocks = SetClocks()
    wall, monotonic = lambda: clocks.wall_ms * 1_000_000, lambda: clocks.monotonic_ms * 1_000_000
    with replaced(wall, monotonic):
        yield clocks


@pytest.fixture
def bench(tmp_path: Path, clocks: SetClocks) -> Bench:
    assert clocks.monotonic_ms >= 0
    return Bench(tmp_path)


def test_a_transaction_unknown_to_the_coordinator_is_aborted(bench: Bench) -> None:
    bench.hanging.look()
    bench.hanging.look()
    bench.answer([False, True])
    assert bench.open() == [B[0]]
    [aborted] = bench.log.transactions.aborted_in(NUMBER, 0, 9, 9).rows
    assert aborted == (NUMBER, *A, 0, 2)
    [notice] = bench.log.notices
    assert "producer 7, open since offset 0" in notice


def test_while_the_log_cannot_be_written_the_shard_asks_again(bench: Bench) -> None:
    bench.log.partitions.table[:, P_FLAGS] |= FLAG_READ_ONLY
    bench.hanging.look()
    bench.answer([False, True])
    assert (bench.open(), list(bench.log.notices)) == ([A[0], B[0]], [])
    bench.log.partitions.table[:, P_FLAGS] &= ~FLAG_READ_ONLY
    bench.hanging.look()
    bench.answer([False, True])
    assert bench.open() == [B[0]]


@pytest.mark.parametrize("said", [Failed("gone"), [True, True], [False]])
def test_without_a_clear_answer_all_stays(bench: Bench, said: list[bool] | Failed) -> None:
    bench.hanging.look()
    bench.answer(said)
    assert bench.open() == [A[0], B[0]]


def test_a_transaction_that_ended_after_the_question_is_not_aborted(bench: Bench) -> None:
    bench.hanging.look()
    bench.producers.end(NUMBER, Marker(*A, committed=True, coordinator_epoch=0))
    bench.producers.write([b"next"], A, 1)
    bench.answer([False, True])
    assert sorted(bench.open()) == [A[0], B[0]], "the next one of the same producer"


def test_a_producers_next_transaction_begun_after_the_question_is_not_aborted(
    bench: Bench, clocks: SetClocks
) -> None:
    """Its next transaction, of the same epoch, was aborted in part, and then committed."""
    bench.hanging.look()
    bench.producers.write([b"of the next one"], A, 1)
    bench.answer([False, True])
    assert sorted(bench.open()) == [A[0], B[0]]
    clocks.monotonic_ms += ASK_EVERY_MS
    bench.hanging.look()
    bench.answer([False, True])
    assert bench.open() == [B[0]], "nobody wrote meanwhile"


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000])
def test_a_young_transaction_is_not_asked_about_again(
    bench: Bench, clocks: SetClocks, step_ms: int
) -> None:
    """Data fault 5: after a step back nobody asked until the wall clock had caught up."""
    clocks.monotonic_ms -= 1
    bench.hanging = Hanging(bench.shard, bench.peers)  # type: ignore[arg-type]
    clocks.monotonic_ms += 1  # They have begun after its start.
    bench.hanging.look()
    bench.answer([True, True])
    clocks.wall_ms += step_ms
    clocks.monotonic_ms += ASK_AFTER_MS - 1
    bench.hanging.look()
    assert bench.peers.asked_coordinator == []
    clocks.monotonic_ms += ASK_EVERY_MS
    bench.hanging.look()
    bench.answer([True, True])


def test_a_transaction_open_since_before_the_start_is_asked_about_until_it_ends(
    bench: Bench, clocks: SetClocks
) -> None:
    """A marker was lost, and the next transaction of its producer and epoch was taken for it."""
    bench.hanging.look()
    bench.answer([True, True])
    clocks.monotonic_ms += ASK_EVERY_MS
    bench.hanging.look()
    bench.answer([False, True])
    assert bench.open() == [B[0]]


def test_every_open_transaction_is_asked_about_some_at_a_time(
    bench: Bench, clocks: SetClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """data fault 13: with more than a thousand open for long, the same thousand were asked about
    each time, and all were visited in one step."""
    monkeypatch.setattr(hanging, "ASKED_MAX", 2)
    monkeypatch.setattr(hanging, "WALKED_MAX", 3)
    for i in range(10):
        bench.producers.write([b"x"], (100 + i, 0))

    def round_of_questions() -> list[int]:
        asked = []
        for _ in range(20):
            bench.hanging.look()
            for question, answered in list(bench.peers.asked_coordinator):
                bench.peers.asked_coordinator.clear()
                assert isinstance(question, FindTransactions)
                assert len(question.producers) <= 2
                asked += [producer_id for producer_id, _ in question.producers]
                answered([True] * len(question.producers))
        return asked

    everybody = [A[0], B[0], *range(100, 110)]
    assert round_of_questions() == everybody  # At the start.
    assert round_of_questions() == []
    clocks.monotonic_ms += ASK_AFTER_MS
    assert round_of_questions() == everybody
    assert round_of_questions() == []


def test_a_walk_that_failed_at_the_start_asks_about_all_again(
    bench: Bench, clocks: SetClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hanging, "ASKED_MAX", 1)
    bench.hanging.look()
    for said in ([True], Failed("the coordinator is gone")):
        [(_, answered)] = bench.peers.asked_coordinator
        bench.peers.asked_coordinator.clear()
        answered(said)
    assert bench.peers.asked_coordinator == []
    clocks.monotonic_ms += ASK_EVERY_MS
    bench.hanging.look()
    [(question, _)] = bench.peers.asked_coordinator
    assert question == FindTransactions([OpenProducer(*A)])
