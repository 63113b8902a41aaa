"""Partitions are shared fairly, stay where they are, and never have two owners."""

from typing import Any

from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from smq.agent.sharing import PartitionSharing

ALL = 1000


def take(sharing: PartitionSharing[str], instance: str) -> list[int]:
    return [partition for partition, _ in sharing.take(instance)]


def test_the_first_instance_has_all_partitions_it_may_have() -> None:
    sharing = PartitionSharing[str](4)
    sharing.join("a", ALL)
    assert take(sharing, "a") == [0, 1, 2, 3]
    limited = PartitionSharing[str](4)
    limited.join("a", 1)
    assert take(limited, "a") == [0]


def test_a_second_instance_gets_its_share_once_the_first_has_released_it() -> None:
    sharing = PartitionSharing[str](4)
    sharing.join("a", ALL)
    sharing.take("a")
    sharing.join("b", ALL)
    assert sharing.take("b") == []
    assert sharing.to_release("a") == [2, 3]
    sharing.release("a", 3)
    assert sharing.take("b") == [(3, True)]
    sharing.release("a", 2)
    assert sharing.take("b") == [(2, True)]
    assert sharing.to_release("a") == []


def test_the_partitions_of_an_instance_that_has_gone_are_anothers_at_once() -> None:
    sharing = PartitionSharing[str](2)
    for name in "ab":
        sharing.join(name, ALL)
        sharing.take(name)
    sharing.leave("a")
    assert sharing.take("b") == [(0, True), (1, True)]


def test_new_partitions_are_shared_too() -> None:
    sharing = PartitionSharing[str](1)
    for name in "ab":
        sharing.join(name, ALL)
        sharing.take(name)
    sharing.grow(3)
    taken = take(sharing, "a") + take(sharing, "b")
    assert sorted(taken) == [1, 2]
    assert sharing.to_release("a") == sharing.to_release("b") == []


def test_an_instance_of_before_keeps_its_partitions_until_another_one_succeeds_it() -> None:
    sharing = PartitionSharing[str](4)
    sharing.recall("old a", [1, 3, 9])
    sharing.recall("old b", [0, 1])
    sharing.join("c", ALL)
    assert sharing.take("c") == [(2, False)]
    sharing.succeed("old a", "a", ALL)
    assert sharing.take("a") == [(1, False), (3, False)]
    sharing.leave("old b")
    assert sharing.take("c") == [(0, True)]
    sharing.invariants()


@given(st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_shares_differ_by_one_but_for_what_instances_may_have(
    count: int, limits: list[int]
) -> None:
    sharing = PartitionSharing[int](count)
    for instance, limit in enumerate(limits):
        sharing.join(instance, limit)
    for _ in range(2):  # Releases first.
        for instance in range(len(limits)):
            for partition in sharing.to_release(instance):
                sharing.release(instance, partition)
        for instance in range(len(limits)):
            sharing.take(instance)
    owned = [[*sharing._owners.values()].count(each) for each in range(len(limits))]
    assert sum(owned) == min(count, sum(limits))
    for share, limit in zip(owned, limits, strict=True):
        assert share == limit or share >= max(owned) - 1


class SharingMachine(RuleBasedStateMachine):
    """Instances come, go, take and release in any order; a dict says who has what."""

    @initialize(count=st.integers(1, 6))
    def begin(self, count: int) -> None:
        self.sharing = PartitionSharing[str](count)
        self.count = count
        self.have: dict[int, str] = {}

    @rule(name=st.sampled_from("abc"), limit=st.integers(1, 6))
    def join(self, name: str, limit: int) -> None:
        self.sharing.join(name, limit)

    @rule(name=st.sampled_from("abc"))
    def leave(self, name: str) -> None:
        self.sharing.leave(name)
        self.have = {each: owner for each, owner in self.have.items() if owner != name}

    @rule(name=st.sampled_from("abc"), limit=st.integers(1, 6))
    def come_back(self, name: str, limit: int) -> None:
        had = [each for each in range(self.count) if each not in self.have]
        self.sharing.recall("before", had)
        if "before" in self.sharing._limits and name not in self.sharing._limits:
            self.sharing.succeed("before", name, limit)
        else:
            self.sharing.leave("before")

    @rule(name=st.sampled_from("abc"))
    def take(self, name: str) -> None:
        for partition, _ in self.sharing.take(name):
            assert partition not in self.have
            self.have[partition] = name

    @rule(name=st.sampled_from("abc"))
    def release(self, name: str) -> None:
        for partition in self.sharing.to_release(name)[:1]:
            assert self.have.pop(partition) == name
            self.sharing.release(name, partition)

    @rule(more=st.integers(0, 2))
    def grow(self, more: int) -> None:
        self.count += more
        self.sharing.grow(self.count)

    @invariant()
    def shares_are_within_their_limits(self) -> None:
        if hasattr(self, "sharing"):
            self.sharing.invariants()


TestSharingMachine = SharingMachine.TestCase


def test_a_join_of_many_instances_shares_as_one_after_the_other_would() -> None:
    sharing = PartitionSharing[int](2520)
    for instance in range(40):
        sharing.join(instance, 1 + instance * 7)
    quotas = sharing._quotas()
    assert sum(quotas.values()) == 2520
    full = {each for each, quota in quotas.items() if quota == 1 + each * 7}
    rest = {quota for each, quota in quotas.items() if each not in full}
    assert len(rest) <= 2
    assert max(rest) - min(rest) <= 1


def test_a_share_is_found_without_a_look_at_all_instances_for_each_partition() -> None:
    class Limits(dict[int, int]):
        looks = 0

        def __getitem__(self, key: int) -> int:
            Limits.looks += 1
            return super().__getitem__(key)

        def items(self) -> Any:
            Limits.looks += len(self)
            return super().items()

    sharing = PartitionSharing[int](2520)
    sharing._limits = Limits(dict.fromkeys(range(1000), 2520))
    sharing.join(1000, 2520)
    assert Limits.looks < 20_000
