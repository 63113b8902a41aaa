"""The shares of groups' instances in topics, by whichever service they came.

Instances that had partitions before this process began keep them for a while: who comes back in
time has them again, and the others need not move twice.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from smq.agent.sharing import PartitionSharing
from smq.app.agent.members import InstanceName, Past
from smq.app.agent.topics import KnownTopic

TakePast: TypeAlias = Callable[[str, str], tuple[float, Past]]
"""Of a group and a topic: see GroupMembers.take_past."""


class SharedTopic:
    """A topic, as a group's instances share it."""

    def __init__(self, partition_count: int, past: Past) -> None:
        self.sharing = PartitionSharing["Share | InstanceName"](partition_count)
        self.shares: set[Share] = set()
        self.past = {*past}
        for name, partitions in past.items():
            self.sharing.recall(name, partitions)

    def join(self, share: "Share", name: InstanceName | None, partitions_max: int) -> None:
        """An instance comes, or comes back."""
        self.shares.add(share)
        if name is not None and name in self.past:
            self.past.discard(name)
            self.sharing.succeed(name, share, partitions_max)
        else:
            self.sharing.join(share, partitions_max)
        self.tell()

    def forget_past(self) -> None:
        """Who has not come back has gone."""
        for each in self.past:
            self.sharing.leave(each)
        self.past.clear()
        self.tell()

    def tell(self) -> None:
        """Something has moved: each instance looks at its share."""
        for each in self.shares:
            each.news.set()


class Sharings:
    """The topics that are shared now, by group and topic."""

    def __init__(self, take_past: TakePast) -> None:
        self._take_past = take_past
        self._shared: dict[tuple[object, object], SharedTopic] = {}

    def join(self, name: InstanceName, topic: KnownTopic, partitions_max: int) -> "Share":
        """The share of a new instance, which has at most so many partitions.

        Without a group it shares with nobody.
        """
        key = name.group or object(), topic.id
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._begun(name.group, topic)
        share = Share(self, key, shared)
        shared.join(share, name if name.group else None, partitions_max)
        return share

    def _begun(self, group: str, topic: KnownTopic) -> SharedTopic:
        left_s, past = self._take_past(group, topic.kafka_name)
        shared = SharedTopic(topic.layout.partition_count, past)
        if past:
            asyncio.get_running_loop().call_later(left_s, shared.forget_past)
        return shared

    def leave(self, key: tuple[object, object], share: "Share") -> None:
        """An instance has gone."""
        shared = self._shared[key]
        shared.shares.discard(share)
        shared.sharing.leave(share)
        shared.tell()
        if not shared.shares:
            del self._shared[key]


class Share:
    """What one instance has, and is to have; `news` says when to look."""

    def __init__(self, sharings: Sharings, key: tuple[object, object], shared: SharedTopic) -> None:
        self._sharings, self._key, self._shared = sharings, key, shared
        self.news = asyncio.Event()

    def grow(self, partition_count: int) -> None:
        """The topic may have more partitions."""
        self._shared.sharing.grow(partition_count)

    def take(self) -> list[tuple[int, bool]]:
        """The partitions that are ours from now on, and whether another instance had them."""
        return self._shared.sharing.take(self)

    def to_release(self) -> list[int]:
        """The partitions that we have, and that are to be another's."""
        return self._shared.sharing.to_release(self)

    def release(self, partition: int) -> None:
        """We have let a partition go."""
        self._shared.sharing.release(self, partition)
        self._shared.tell()

    def leave(self) -> None:
        """We are gone, with all that we had."""
        self._sharings.leave(self._key, self)
