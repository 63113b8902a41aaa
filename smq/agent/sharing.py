"""Shares the partitions of a topic among the instances of a group.

Every instance has at most as many as it asks for, and but for that as many as the others, or one
more. A partition stays with its owner while that is so. One that is to move is free only once its
owner has released it: no two instances have it at a time.

An instance of before, which is not here any more, keeps what it had until another one succeeds it,
or it leaves.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Instance = TypeVar("Instance", bound=Hashable)


class PartitionSharing(Generic[Instance]):
    """Who has which partition, and who is to have it."""

    def __init__(self, partition_count: int) -> None:
        self._count = partition_count
        self._limits: dict[Instance, int] = {}  # In the order in which they joined.
        self._owners: dict[int, Instance] = {}
        self._targets: dict[int, Instance] = {}
        self._last: dict[int, Instance] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def grow(self, partition_count: int) -> None:
        """The topic has more partitions."""
        if partition_count > self._count:
            self._count = partition_count
            self._share()

    def join(self, instance: Instance, partitions_max: int) -> None:
        """An instance wants partitions, at most so many."""
        assert partitions_max > 0
        self._limits[instance] = partitions_max
        self._share()

    def recall(self, instance: Instance, partitions: Iterable[int]) -> None:
        """An instance of before had partitions, which nobody has now."""
        had = {each for each in partitions if 0 <= each < self._count} - self._owners.keys()
        if had:
            self._owners |= dict.fromkeys(had, instance)
            self._last |= dict.fromkeys(had, instance)
            self._limits[instance] = len(had)
            self._share()

    def succeed(self, before: Instance, instance: Instance, partitions_max: int) -> None:
        """An instance comes back, as another one: what it had is free, and its own first."""
        had = [each for each, owner in self._owners.items() if owner == before]
        for partition in had:
            del self._owners[partition]
            self._last[partition] = instance
        del self._limits[before]
        self.join(instance, partitions_max)

    def leave(self, instance: Instance) -> None:
        """An instance has gone, with all it had."""
        if self._limits.pop(instance, None) is not None:
            owned = [each for each, owner in self._owners.items() if owner == instance]
            for partition in owned:
                del self._owners[partition]
            self._share()

    def take(self, instance: Instance) -> list[tuple[int, bool]]:
        """The partitions that are an instance's from now on, and whether others had them before."""
        taken = []
        for partition, target in sorted(self._targets.items(), key=lambda each: each[0]):
            if target == instance and partition not in self._owners:
                self._owners[partition] = instance
                before = self._last.get(partition, instance)
                self._last[partition] = instance
                taken.append((partition, before != instance))
        return taken

    def to_release(self, instance: Instance) -> list[int]:
        """The partitions that an instance has and is not to have any more."""
        return [
            partition
            for partition, owner in sorted(self._owners.items(), key=lambda each: each[0])
            if owner == instance and self._targets.get(partition) != instance
        ]

    def release(self, instance: Instance, partition: int) -> None:
        """An instance has let a partition go."""
        if self._owners.get(partition) == instance:
            del self._owners[partition]

    def _share(self) -> None:
        quotas = self._quotas()
        targets: dict[int, Instance] = {}
        left = dict(quotas)
        for partition in range(self._count):  # Who has one keeps it.
            owner = self._owners.get(partition)
            if owner is not None and left.get(owner, 0):
                targets[partition] = owner
                left[owner] -= 1
        free = [each for each in range(self._count) if each not in targets]
        for partition in free:  # Whose it was last, and is nobody's now, goes back.
            last = self._last.get(partition)
            if last is not None and partition not in self._owners and left.get(last, 0):
                targets[partition] = last
                left[last] -= 1
        free = [each for each in free if each not in targets]
        for instance, count in left.items():
            for partition in free[:count]:
                targets[partition] = instance
            del free[:count]
        self._targets = targets

    def _quotas(self) -> dict[Instance, int]:
        """How many partitions each instance is to have: one more for those that have more now."""
        quotas = dict.fromkeys(self._limits, 0)
        owned = dict.fromkeys(self._limits, 0)
        for owner in (self._last | self._owners).values():
            if owner in owned:
                owned[owner] += 1
        left, open_to = self._count, sorted(self._limits, key=lambda each: -owned[each])
        while left and open_to:  # One more for each of them, or several.
            least = min(self._limits[each] - quotas[each] for each in open_to)
            more = min(least, max(1, left // len(open_to)))
            for each in open_to[:left]:
                quotas[each] += more
                left -= more
            open_to = [each for each in open_to if quotas[each] < self._limits[each]]
        return quotas

    def invariants(self) -> None:
        assert {*self._owners.values(), *self._targets.values()} <= self._limits.keys()
        assert all(0 <= each < self._count for each in (*self._owners, *self._targets))
        for instance, limit in self._limits.items():
            assert [*self._targets.values()].count(instance) <= limit
        capacity = sum(self._limits.values())
        assert len(self._targets) == min(self._count, capacity)
