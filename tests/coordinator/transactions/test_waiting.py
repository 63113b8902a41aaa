"""Who waits is handled in order once the end is complete, or after a while; few may wait."""

import pytest

from smq.coordinator.deadlines import NEVER_MS
from smq.coordinator.transactions import waiting
from smq.coordinator.transactions.waiting import WAIT_MS, EarlyRequests, StillEnding
from smq.model.now import Now

START = Now(1000, 0)
A, B = StillEnding("a"), StillEnding("b")


def at(ms: int) -> Now:
    return START._replace(monotonic_ms=START.monotonic_ms + ms)


class Bench:
    """Requests that note their names when they are handled."""

    def __init__(self) -> None:
        self.waiting = EarlyRequests()
        self.handled: list[str] = []

    def add(self, ending: StillEnding, name: str, ms: int = 0, size: int = 10) -> bool:
        return self.waiting.add(ending, lambda: self.handled.append(name), size, at(ms))

    def take(self, ms: int = 0) -> list[str]:
        """What is handled at this time."""
        self.handled.clear()
        for again in self.waiting.take(at(ms)):
            again()
        self.waiting.invariants()
        return list(self.handled)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_end_releases_its_requests_in_their_order(bench: Bench) -> None:
    for ending, name in ((A, "1"), (B, "2"), (A, "3")):
        assert bench.add(ending, name)
    assert bench.take() == []
    bench.waiting.ended("a")
    bench.waiting.ended("nobody waits for this")
    assert bench.waiting.next_wake_ms() == 0
    assert bench.take() == ["1", "3"]
    assert bench.take(WAIT_MS) == ["2"]
    assert bench.waiting.next_wake_ms() == NEVER_MS


def test_a_request_waits_for_100_ms_at_most(bench: Bench) -> None:
    bench.add(A, "1")
    bench.add(A, "2", ms=7)
    assert bench.waiting.next_wake_ms() == at(WAIT_MS).monotonic_ms
    assert bench.take(WAIT_MS - 1) == []
    assert bench.take(WAIT_MS) == ["1"]
    bench.waiting.ended("a")
    assert bench.take(WAIT_MS) == ["2"]


def test_too_many_and_too_large_ones_do_not_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WAITING_MAX", 3)
    monkeypatch.setattr(waiting, "WAITING_BYTES_MAX", 100)
    assert bench.add(A, "1", size=60)
    assert not bench.add(B, "2", size=41)
    assert bench.add(A, "3", size=39)
    assert bench.add(A, "4", size=1)
    bench.waiting.ended("a")
    assert not bench.add(B, "5", size=0), "they are not handled yet"
    assert bench.take() == ["1", "3", "4"]
    assert bench.add(B, "6", size=100)


def test_a_turn_handles_some(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TAKEN_AT_ONCE", 2)
    for name in ("1", "2", "3", "4"):
        bench.add(A if name < "4" else B, name)
    bench.waiting.ended("a")
    assert bench.take(WAIT_MS) == ["1", "2"]
    assert bench.take(WAIT_MS) == ["3", "4"]
