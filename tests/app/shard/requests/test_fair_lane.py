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


def test_work_of_clients_that_have_ended_their_side_waits_behind_all_other() -> None:
    lane, fair, ended = lane_of(["a1"])
    has_ended = dict[str, bool]()
    for name in ("a2", "b1", "b2", "c1"):
        has_ended[name] = False
        done = partial(str, name), ended.append
        fair.add(name, name[0], *done, partial(has_ended.__getitem__, name))
    has_ended |= {"b1": True, "a2": True, "b2": True}
    fair.forget("a2")
    work, done_first = lane.given.pop()
    done_first(work())
    assert len(fair) == 2
    fair.add("d1", "d", partial(str, "d1"), ended.append)
    fair.forget("b1")
    lane.run()
    assert ended == ["a1", "c1", "d1", "b2"]
