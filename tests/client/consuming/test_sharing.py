"""A group gets its commits and partitions through every failure and interrupt."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from itertools import count
from types import FunctionType
from typing import Any

import pytest

from smq.client.consuming.group.commits import Membership, Renewed
from smq.client.consuming.group.group_member import Assigned, Event, Failed, Lost, Rebalance
from smq.client.consuming.sharing import Sharing
from smq.client.consuming.source.reading import Reading
from smq.client.errors import BrokerUnavailable
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from tests.client.consuming.source.test_reading import FakeWire
from tests.client.interrupts import code_of, is_interrupted

ZERO, ONE, TWO = (TopicPartition("t", each) for each in range(3))
CODES = code_of(*(each for each in vars(Sharing).values() if isinstance(each, FunctionType)))


class FakeMember:
    """Notes what it is told in a log that it shares with the others."""

    def __init__(self, log: list[Any], *, is_cooperative: bool) -> None:
        self.events: deque[Event] = deque()
        self.membership = Membership(1, "me")
        self.is_cooperative = is_cooperative
        self.is_member = True
        self._log = log

    def polled(self) -> None:
        """Nothing follows from it."""

    def take_event(self) -> Event:
        return self.events.popleft()

    def join(self, owned: Iterable[TopicPartition]) -> None:
        self._log.append(("join", frozenset(owned)))


class FakeCommitting:
    """Every commit fails with `error`, if there is one."""

    def __init__(self, log: list[Any], *, is_automatic: bool) -> None:
        self.is_automatic = is_automatic
        self.error: BrokerError | None = None
        self.renewed: Renewed = lambda: None
        self.is_due_now = False
        self._log = log

    def is_due(self) -> bool:
        return self.is_due_now

    def settle(self) -> None:
        self._log.append("settle")

    def commit(
        self, offsets: Mapping[TopicPartition, int], membership: Membership, renewed: Renewed
    ) -> "Future[None]":
        self._log.append(("commit", dict(offsets), membership.generation_id))
        self.renewed = renewed
        done: Future[None] = Future()
        if self.error is None:
            done.set_result(None)
        else:
            done.set_exception(self.error)
        return done

    commit_if_moved = commit


class FakeBeginnings:
    """Everything begins at 5, but when it fails."""

    def __init__(self) -> None:
        self.failures = 0

    def positions_anew(self, names: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.failures:
            self.failures -= 1
            raise BrokerUnavailable("away")
        return dict.fromkeys(names, 5)


class Rig:
    def __init__(self, *, is_cooperative: bool = True, is_automatic: bool = True) -> None:
        self.log: list[Any] = []
        self.reading = Reading(None, FakeWire())  # type: ignore[arg-type]
        self.beginnings = FakeBeginnings()
        self.committing = FakeCommitting(self.log, is_automatic=is_automatic)
        self.member = FakeMember(self.log, is_cooperative=is_cooperative)
        parts: list[Any] = [self.reading, self.beginnings, self.committing, self.member]
        self.sharing = Sharing(*parts)

    def tell(self, *events: Event) -> None:
        self.member.events += events

    def has(self, *names: TopicPartition) -> bool:
        return self.reading.partitions.keys() == set(names)

    def joins(self) -> list[frozenset[TopicPartition]]:
        return [each[1] for each in self.log if each[0] == "join"]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.tell(Assigned(frozenset({ZERO, ONE})))
    rig.sharing.turn()
    assert rig.has(ZERO, ONE)
    assert rig.log == []
    yield rig
    assert not rig.member.events


def test_a_revoked_partition_is_committed_before_the_join_without_it(rig: Rig) -> None:
    rig.tell(Assigned(frozenset({ONE})))
    rig.sharing.turn()
    assert rig.has(ONE)
    assert rig.log == [("commit", {ZERO: 5, ONE: 5}, 1), ("join", {ONE})]
    assert rig.sharing.rebalances == 2


def test_a_join_that_a_failure_came_before_is_not_forgotten(rig: Rig) -> None:
    rig.tell(Assigned(frozenset({ONE, TWO})))
    rig.beginnings.failures = 2
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            rig.sharing.turn()
    assert rig.joins() == []
    rig.sharing.turn()
    assert rig.has(ONE, TWO)
    assert rig.joins() == [{ONE, TWO}]
    rig.sharing.turn()
    assert rig.joins() == [{ONE, TWO}]


def test_a_commit_that_fails_does_not_keep_partitions_from_others(rig: Rig) -> None:
    rig.committing.error = BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
    rig.tell(Assigned(frozenset()))
    rig.sharing.turn()
    assert rig.has()
    assert rig.joins() == [frozenset()]


@pytest.mark.parametrize(
    ("is_cooperative", "event", "left", "joined"),
    [
        (True, Assigned(frozenset({ONE, TWO})), {ONE, TWO}, {ONE, TWO}),
        (True, Rebalance(), {ZERO, ONE}, {ZERO, ONE}),
        (False, Rebalance(), set(), set()),
        (False, Lost(), set(), set()),
    ],
    ids=["revoked", "cooperative", "eager", "lost"],
)
def test_an_interrupt_anywhere_leaves_nothing_undone(
    event: Event, left: set[TopicPartition], joined: set[TopicPartition], *, is_cooperative: bool
) -> None:
    for number in count():
        rig = Rig(is_cooperative=is_cooperative)
        rig.tell(Assigned(frozenset({ZERO, ONE})))
        rig.sharing.turn()
        rig.tell(event)
        is_there = is_interrupted(rig.sharing.turn, CODES, number)
        rig.sharing.turn()
        assert not rig.member.events
        assert rig.has(*left)
        assert set(rig.joins()) == {frozenset(joined)}
        if not is_there:
            break
    assert number > 10


@pytest.mark.parametrize("is_automatic", [True, False])
def test_nothing_is_on_its_way_when_a_group_joins_anew(*, is_automatic: bool) -> None:
    rig = Rig(is_cooperative=False, is_automatic=is_automatic)
    rig.tell(Assigned(frozenset({ZERO})), Rebalance())
    rig.sharing.turn()
    assert rig.has()
    waited = ("commit", {ZERO: 5}, 1) if is_automatic else "settle"
    assert rig.log == [waited, ("join", frozenset())]


def test_a_member_that_lost_its_membership_raises_and_joins_again(rig: Rig) -> None:
    error = BrokerError(ErrorCode.FENCED_INSTANCE_ID)
    rig.tell(Failed(error, is_out=False), Failed(error, is_out=True))
    with pytest.raises(BrokerError):
        rig.sharing.turn()
    assert rig.has(ZERO, ONE)
    assert rig.joins() == []
    with pytest.raises(BrokerError):
        rig.sharing.turn()
    assert rig.has()
    assert rig.joins() == [frozenset()]


def test_a_commit_is_renewed_while_its_partitions_are_ours(rig: Rig) -> None:
    rig.sharing.commit(None)
    assert rig.log == [("commit", {ZERO: 5, ONE: 5}, 1)]
    rig.member.membership = Membership(2, "me")
    assert rig.committing.renewed() == Membership(2, "me")
    rig.member.is_member = False
    assert rig.committing.renewed() is None, "the group goes on without us"
    rig.member.is_member = True
    rig.sharing.commit({ZERO: 4, TWO: 4})
    assert rig.committing.renewed() is None, "one is not ours"
    rig.sharing.commit({ZERO: 4})
    rig.tell(Assigned(frozenset({ONE})), Assigned(frozenset({ZERO, ONE})))
    rig.sharing.turn()
    assert rig.has(ZERO, ONE)
    assert rig.committing.renewed() is None, "it has been another's"


def test_commits_that_are_due_are_made(rig: Rig) -> None:
    rig.committing.is_due_now = True
    rig.sharing.turn()
    assert rig.log == [("commit", {ZERO: 5, ONE: 5}, 1)]


def test_an_eager_member_that_is_assigned_twice_gives_up_what_it_has_no_more() -> None:
    """It joins twice where Rebalance and Lost come in one poll."""
    rig = Rig(is_cooperative=False)
    rig.tell(Assigned(frozenset({ZERO, ONE})))
    rig.sharing.turn()
    rig.tell(Assigned(frozenset({ZERO})))
    rig.sharing.turn()
    assert rig.has(ZERO)
