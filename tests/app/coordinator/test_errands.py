"""Orders of transactions reach shards over real sockets, and again until they are done."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.app.coordinator.errands import Errands, report
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.coordinator.transactions.endings import RETRY_MS
from smq.coordinator.transactions.orders import MarkerOrder, SyncOrder
from smq.model.errors import ErrorCode
from smq.wire.internal import transactions as questions
from smq.wire.internal.form import Failed, by_name, decode_question, encode_answer
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.moves import AdoptPartition, ClosePartition
from tests.coordinator.transactions.transactions_driver import TransactionsDriver

KNOWN = by_name(questions.WriteMarkers, questions.SyncLogs, ClosePartition, AdoptPartition)


class FakeShard:
    """Answers as it is told to; `answers` is what it says next, None: it breaks the link."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self._loop = loop
        self.asked: list[object] = []
        self.answers: list[object] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._links: list[Link] = []
        loop.register(self._listener.fileno(), 1, lambda _events: self._accept())

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        self._links.append(Link(self._loop, sock, self._frame, self._links.remove))

    def _frame(self, link: Link, frame: InternalFrame) -> None:
        self.asked.append(decode_question(frame.body, KNOWN))
        answer = self.answers.pop(0)
        if answer is None:
            link.close()
        else:
            link.send(encode_answer(frame.id, answer))

    def close(self) -> None:
        self._loop.unregister(self._listener.fileno())
        self._listener.close()
        for link in self._links:
            link.close()


class Bench:
    """Transactions whose orders go to one fake shard, whatever the node."""

    def __init__(self, directory: Path) -> None:
        self.driver = TransactionsDriver(directory / "store.sqlite")
        self.loop = Loop()
        path = directory / "shard.sock"
        self.shard = FakeShard(self.loop, path)
        self.errands = Errands(self.loop, lambda _node: path)

    def send(self) -> None:
        """Send what is ordered, and wait until all of it is answered."""
        orders = self.driver.take_orders()
        left = len(orders)
        for order in orders:

            def answered(sent: object, order: MarkerOrder | SyncOrder = order) -> None:
                nonlocal left
                left -= 1
                endings = self.driver.transactions.endings
                report(endings, order, sent, self.driver.now)  # type: ignore[arg-type]

            self.errands.send(order, answered)
        while left:
            self.loop.run_once(1000)

    def close(self) -> None:
        self.errands.close()
        self.shard.close()
        self.driver.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_markers_say_who_and_how_it_ended(bench: Bench) -> None:
    producer = bench.driver.begin()
    bench.driver.add(producer, 1, 3)
    bench.driver.end(producer)
    bench.shard.answers = [[ErrorCode.NONE, ErrorCode.NONE]]
    bench.send()
    [asked] = bench.shard.asked
    assert asked == questions.WriteMarkers(
        producer_id=producer.id,
        producer_epoch=producer.epoch + 1,
        committed=True,
        coordinator_epoch=0,
        transaction_version=2,
        numbers=[1, 3],
    )
    assert bench.driver.state == "CompleteCommit"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Failed("there is no command 'write_markers'"),
        [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER],
        [],
    ],
)
def test_an_order_is_sent_again_until_the_shard_has_done_it(bench: Bench, answer: object) -> None:
    producer = bench.driver.begin()
    bench.driver.add(producer, 1, 3)
    bench.driver.end(producer, bumps=False, commits=False)
    for _ in range(2):
        bench.shard.answers = [answer]
        bench.send()
        assert bench.driver.state == "PrepareAbort"
        bench.driver.wait(RETRY_MS)
    bench.shard.answers = [[ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]]
    bench.send()
    assert bench.driver.state == "CompleteAbort"
    assert len(set(map(str, bench.shard.asked))) == 1


def test_a_shard_that_is_not_there_is_asked_again(bench: Bench, tmp_path: Path) -> None:
    producer = bench.driver.begin()
    bench.driver.add(producer, 1)
    bench.driver.end(producer)
    there = bench.errands
    bench.errands = Errands(bench.loop, lambda _node: tmp_path / "nobody.sock")
    bench.send()
    assert bench.driver.state == "PrepareCommit"
    bench.driver.wait(RETRY_MS)
    bench.errands, bench.shard.answers = there, [[ErrorCode.NONE]]
    bench.send()
    assert bench.driver.state == "CompleteCommit"


def test_markers_beside_a_disk_topic_are_to_be_on_disk_too(bench: Bench) -> None:
    for commits in (True, False):
        producer = bench.driver.begin()
        bench.driver.add(producer, 1, 5)
        bench.driver.end(producer, commits=commits)
        bench.shard.answers = [[], [0, 0]] if commits else [[0, 0]]
        bench.send()
        bench.send()
    asked = [each for each in bench.shard.asked if isinstance(each, questions.WriteMarkers)]
    assert [(each.committed, each.is_synced) for each in asked] == [(True, True), (False, False)]


@pytest.mark.parametrize("answer", [[], None, Failed("the log has failed")])
def test_a_commit_is_decided_only_after_the_sync(bench: Bench, answer: object) -> None:
    producer = bench.driver.begin()
    bench.driver.add(producer, 5)
    bench.driver.end(producer)
    bench.shard.answers = [answer]
    bench.send()
    assert bench.shard.asked == [questions.SyncLogs(producer[0], [5], [questions.NOT_WRITTEN])]
    assert bench.driver.state == ("PrepareCommit" if answer == [] else "Ongoing")
