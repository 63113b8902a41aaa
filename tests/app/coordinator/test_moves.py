"""Moves by a coordinator's server: its orders reach shards once what they rest on is published."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from smq.app.process.epochs import epoch_sockets, give_epochs
from smq.app.process.inheritance import COORDINATOR, SUPERVISOR
from smq.coordinator.moves import RETRY_MS, Moves
from smq.coordinator.topics import NewTopic
from smq.model.catalog import Leadership, Moved
from smq.security.principals import Peer
from smq.wire.internal.form import Failed
from smq.wire.internal.moves import Adopted, AdoptPartition, ClosedAt, ClosePartition, EpochStart
from tests.app.coordinator.server_bench import Bench
from tests.app.coordinator.test_errands import FakeShard


class Moving:
    """A server with a topic `t` in log 0, one fake shard for all nodes, and a supervisor."""

    def __init__(self, directory: Path) -> None:
        path = directory / "shard.sock"
        self.ends = epoch_sockets()
        self.bench = Bench(directory / "store.sqlite", path, self.ends[COORDINATOR])
        self.shard = FakeShard(self.bench.loop, path)
        self.epochs = count(9)
        give_epochs(self.bench.loop, self.ends[SUPERVISOR], self.epochs.__next__)
        topics = self.bench.server._coordinator.topics
        topic = topics.create(NewTopic(name="t", assignments=[(0, [1])]), self.bench.now)
        [self.number] = topic.partition_numbers
        self.bench.turn()

    @property
    def moves(self) -> Moves:
        return self.bench.server._coordinator.moves

    def ask(self, *answers: object) -> None:
        """Move it to node 2; the shard gives these answers."""
        self.shard.answers += answers
        self.moves.ask(self.number, 2, Peer(), self.bench.now)
        self.bench.turn(20)

    def published(self) -> Moved:
        return self.bench.published[-1].by_name["t"].moved(0)

    def outcomes(self) -> list[str]:
        return [each.outcome for each in self.bench.store.moves.newest(9)]

    def close(self) -> None:
        self.bench.server.close()
        self.shard.close()
        self.bench.store.close()
        for each in self.ends.values():
            each.close()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    moving = Moving(tmp_path)
    yield moving
    moving.close()


CLOSED = ClosedAt(100, [EpochStart(7, 0)])
LED = Leadership(0, 0, 0, None)


def test_shards_and_supervisor_carry_out_a_move(moving: Moving) -> None:
    moving.ask(CLOSED, Adopted(100))
    assert moving.shard.asked == [
        ClosePartition(moving.number, 1),
        AdoptPartition(moving.number, 1, 9, 1, 100),
    ]
    there = Leadership(7, 0, 0, 100), Leadership(9, 1, 100, None)
    assert moving.published() == Moved(9, None, 1, there)
    assert moving.outcomes() == [""]
    assert [each.by_name["t"].moved(0).target for each in moving.bench.published[-2:]] == [1, None]


def test_a_shard_that_dies_is_asked_again(moving: Moving) -> None:
    moving.ask(None)
    assert moving.published().target == 1
    moving.shard.answers += [CLOSED, Adopted(100)]
    moving.bench.now = moving.bench.now._replace(
        monotonic_ms=moving.bench.now.monotonic_ms + RETRY_MS
    )
    moving.bench.turn(20)
    assert moving.shard.asked[:2] == [ClosePartition(moving.number, 1)] * 2
    assert moving.outcomes() == [""]


def test_a_refusal_is_published_as_the_end_of_the_move(moving: Moving) -> None:
    moving.ask(Failed("it is not led here"))
    assert moving.published() == Moved(0, None, 1, (LED,))
    assert moving.outcomes() == ["it is not led here"]


def test_a_commit_that_fails_leaves_the_partition_where_it_was(moving: Moving) -> None:
    moving.shard.answers += [CLOSED, Adopted(100)]
    moving.moves.ask(moving.number, 2, Peer(), moving.bench.now)
    for _ in range(50):
        if len(moving.shard.asked) == 2:
            break
        moving.bench.turn()
    moving.bench.store.fails = True
    moving.bench.turn(20)
    assert not moving.bench.store.fails
    assert moving.published() == Moved(0, None, 1, (LED,))
    assert moving.outcomes() == ["the coordinator was restarted"]
