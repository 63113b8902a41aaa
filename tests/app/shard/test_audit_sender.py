"""A shard hands its lines to the coordinator: acts at least once, and nothing waits for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from smq.app.shard.audit_sender import LINES_MAX, WAITING_MAX, AuditSender
from smq.security.audit import Audit
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import Audited

if TYPE_CHECKING:
    from smq.app.process.peers import Peers


class FakePeers:
    """A coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Audited] = []
        self._answered: list[Callable[[Any], None]] = []

    def ask_coordinator(self, question: Audited, answered: Callable[[Any], None]) -> None:
        self.asked.append(question)
        self._answered.append(answered)

    def answer(self, answer: bool | Failed = True) -> None:
        self._answered.pop()(answer)


class Bench:
    def __init__(self) -> None:
        self.audit, self.peers, self.said = Audit(), FakePeers(), list[str]()
        self.sender = AuditSender(self.audit, cast("Peers", self.peers), self.said.append)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_acts_are_sent_at_the_end_of_their_turn(bench: Bench) -> None:
    bench.sender.tell_acts()
    assert bench.peers.asked == []
    bench.audit.acts += ["a"]
    bench.sender.tell_acts()
    assert bench.peers.asked == [Audited(["a"], [])]
    bench.audit.acts += ["b"]
    bench.sender.tell_acts()
    assert len(bench.peers.asked) == 1, "one message at a time"
    bench.peers.answer()
    bench.sender.tell_acts()
    assert bench.peers.asked[1:] == [Audited(["b"], [])]


def test_denials_are_sent_once_a_second(bench: Bench) -> None:
    bench.audit.login_failed("10.0.0.7", "CLIENTS", "PLAIN")
    bench.sender.tell_acts()
    assert bench.peers.asked == []
    bench.sender.tell()
    [asked] = bench.peers.asked
    assert asked.acts == []
    assert len(asked.accesses) == 1
    bench.peers.answer()
    bench.sender.tell()
    assert len(bench.peers.asked) == 1


def test_lines_that_a_coordinator_has_not_taken_go_to_the_next(bench: Bench) -> None:
    bench.audit.acts += ["a"]
    bench.audit.login_failed("10.0.0.7", "CLIENTS", "PLAIN")
    bench.sender.tell()
    bench.audit.acts += ["b"]
    bench.peers.answer(Failed("it is gone"))
    bench.sender.tell_acts()
    assert len(bench.peers.asked) == 1, "not in each turn"
    bench.sender.tell()
    first, again = bench.peers.asked
    assert again == Audited(["a", "b"], first.accesses)


def test_many_lines_are_sent_some_at_a_time(bench: Bench) -> None:
    bench.audit.acts += [str(number) for number in range(LINES_MAX + 1)]
    bench.sender.tell_acts()
    bench.peers.answer()
    bench.sender.tell_acts()
    assert [len(each.acts) for each in bench.peers.asked] == [LINES_MAX, 1]


def test_lines_that_wait_are_bounded_and_lost_ones_counted(bench: Bench) -> None:
    bench.audit.acts += ["a"] * (WAITING_MAX + 3)
    bench.sender.tell()
    assert len(bench.audit.acts) + LINES_MAX == WAITING_MAX
    assert bench.said == ["audit: 3 lines are lost: the coordinator does not answer"]


def test_acts_that_no_coordinator_has_taken_are_printed_at_the_end(bench: Bench) -> None:
    bench.audit.acts += ["a"]
    bench.sender.tell_acts()
    bench.audit.acts += ["b"]
    bench.sender.close()
    assert [line[-1] for line in bench.said] == ["a", "b"]
