from collections.abc import Iterator

import pytest

from smq.app.shard.connections import newcomers as module
from smq.app.shard.connections.newcomers import Newcomers
from tests.app.fake_peers import TidyLoop, turn_until

ALL_MAX, OF_ADDRESS_MAX = 6, 3


class FakeConnection:
    def __init__(self, newcomers: Newcomers, host: str) -> None:
        self._newcomers, self.is_closed = newcomers, False
        newcomers.add(self, host)

    def close(self) -> None:
        self.is_closed = True
        self._newcomers.forget(self)


@pytest.fixture
def newcomers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Newcomers]:
    monkeypatch.setattr(module, "NEWCOMERS_MAX", ALL_MAX)
    monkeypatch.setattr(module, "OF_ADDRESS_MAX", OF_ADDRESS_MAX)
    loop = TidyLoop()
    made = Newcomers(loop)
    yield made
    made.invariants()
    loop.close()


def test_the_oldest_of_an_address_goes_when_it_has_its_share(newcomers: Newcomers) -> None:
    other = FakeConnection(newcomers, "other")
    ours = [FakeConnection(newcomers, "one") for _ in range(OF_ADDRESS_MAX + 1)]
    assert [each.is_closed for each in ours] == [True, False, False, False]
    assert not other.is_closed
    newcomers.invariants()


def test_the_oldest_of_all_goes_when_there_are_too_many(newcomers: Newcomers) -> None:
    all_of_them = [FakeConnection(newcomers, str(i)) for i in range(ALL_MAX + 2)]
    assert [each.is_closed for each in all_of_them] == [True] * 2 + [False] * ALL_MAX
    assert len(newcomers) == ALL_MAX
    newcomers.invariants()


def test_the_oldest_of_the_address_with_most_goes_before_an_older_one(
    newcomers: Newcomers,
) -> None:
    slow = FakeConnection(newcomers, "slow")
    some = [FakeConnection(newcomers, "one") for _ in range(OF_ADDRESS_MAX - 1)]
    most = [FakeConnection(newcomers, "two") for _ in range(OF_ADDRESS_MAX)]
    FakeConnection(newcomers, "three")
    assert [each.is_closed for each in (slow, *some, *most)] == [False] * 3 + [True, False, False]
    assert {newcomers.host_of(each) for each in (slow, *some)} == {"slow", "one"}


def test_a_login_makes_room_for_others(newcomers: Newcomers) -> None:
    first = FakeConnection(newcomers, "one")
    newcomers.forget(first)
    newcomers.forget(first)
    later = [FakeConnection(newcomers, "one") for _ in range(OF_ADDRESS_MAX)]
    assert not any(each.is_closed for each in (first, *later))


def test_a_newcomer_without_a_login_in_time_is_closed(
    newcomers: Newcomers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOGIN_MS", 20)
    slow, quick = FakeConnection(newcomers, "one"), FakeConnection(newcomers, "one")
    newcomers.forget(quick)
    turn_until(newcomers.loop, lambda: slow.is_closed)
    assert not quick.is_closed
