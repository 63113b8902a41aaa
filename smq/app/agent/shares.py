"""The shares of groups' instances in topics, by whichever service they came."""

import asyncio

from smq.agent.sharing import PartitionSharing
from smq.app.agent.topics import KnownTopic


class SharedTopic:
    """A topic, as a group's instances share it."""

    def __init__(self, partition_count: int) -> None:
        self.sharing = PartitionSharing["Share"](partition_count)
        self.shares: set[Share] = set()

    def tell(self) -> None:
        """Something has moved: each instance looks at its share."""
        for each in self.shares:
            each.news.set()


class Sharings:
    """The topics that are shared now, by group and topic."""

    def __init__(self) -> None:
        self._shared: dict[tuple[object, object], SharedTopic] = {}

    def join(self, group: str, topic: KnownTopic, partitions_max: int) -> "Share":
        """The share of a new instance, which has at most so many partitions.

        Without a group it shares with nobody.
        """
        key = group or object(), topic.id
        shared = self._shared.setdefault(key, SharedTopic(topic.layout.partition_count))
        share = Share(self, key, shared)
        shared.shares.add(share)
        shared.sharing.join(share, partitions_max)
        shared.tell()
        return share

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
