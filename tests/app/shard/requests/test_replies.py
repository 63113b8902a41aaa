"""The end of a turn: what is open is sent, and the kernel learns the touched clients' state."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from smq.app.shard.requests.replies import Replies


class Client:
    """Counts how often it was flushed."""

    def __init__(self, *, closed: bool = False) -> None:
        self.closed, self.flushed = closed, 0

    def flush(self) -> None:
        self.flushed += 1


class Bench:
    """`told` are the clients of whom the kernel has learnt, `due` those whose acks are due."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.due: list[Any] = []
        acks, answering = SimpleNamespace(open=lambda: self.due), SimpleNamespace(dirty={})
        self.replies = Replies(cast("Any", acks), cast("Any", answering), self.told.append)

    def end_turn(self) -> list[Any]:
        self.told.clear()
        self.replies.end_turn()
        return self.told


def clients(*some: Client) -> tuple[Any, ...]:
    """They stand for connections."""
    return some


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_touched_clients_are_noted_until_the_end_of_the_turn(bench: Bench) -> None:
    touched, changed, gone = clients(Client(), Client(), Client(closed=True))
    bench.replies.touch(touched)
    bench.replies.touch(gone)
    bench.replies.change(changed)
    bench.replies.note_all()
    assert set(bench.told) == {touched, changed}, "a closed one has no descriptor any more"
    assert set(bench.end_turn()) == {touched, changed}
    assert bench.end_turn() == []


def test_a_turn_ends_with_what_is_open_sent_once(bench: Bench) -> None:
    touched, changed, acknowledged = clients(Client(), Client(), Client())
    bench.replies.touch(touched)
    bench.replies.change(changed)
    bench.due = [acknowledged, changed]
    assert set(bench.end_turn()) == {touched, changed, acknowledged}
    bench.due = []
    bench.end_turn()
    assert [touched.flushed, changed.flushed, acknowledged.flushed] == [0, 1, 1]
