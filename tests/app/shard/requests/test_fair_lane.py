"""What logins need of a thread."""

from collections.abc import Callable
from functools import partial
from typing import Any

from smq.app.shard.requests.fair_lane import FairLane


class HeldLane:
    """Does what it was given when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.given.append((work, done))
        assert len(self.given) == 1, "one at a time"

    def run(self) -> None:
        while self.given:
            work, done = self.given.pop()
            done(work())


def lane_of(names: list[str]) -> tuple[HeldLane, FairLane, list[str | OSError]]:
    """Work of connections, whose first letter is their address."""
    lane, ended = HeldLane(), list[str | OSError]()
    fair = FairLane(lane.submit)
    for name in names:
        fair.add(name, name[0], partial(str, name), ended.append)
    return lane, fair, ended


def test_addresses_take_turns() -> None:
    lane, fair, ended = lane_of(["a1", "a2", "a3", "b1", "c1", "c2"])
    assert len(fair) == 5
    lane.run()
    assert ended == ["a1", "a2", "b1", "c1", "a3", "c2"]
    assert len(fair) == 0


def test_nothing_is_done_for_connections_that_are_gone() -> None:
    lane, fair, ended = lane_of(["a1", "a2", "b1", "b2"])
    for name in ("a1", "a2", "b1", "c1"):
        fair.forget(name)
    assert len(fair) == 1
    lane.run()
    assert ended == ["a1", "b2"], "the first was worked at"
