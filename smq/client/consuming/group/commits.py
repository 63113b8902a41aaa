"""Fetches and commits a group's offsets, over a connection and in a thread of its own.

The thread makes commits asynchronous. There is only one, so commits arrive in order, and later work
knows the results of earlier commits.

The group may rebalance while a commit is in flight, which then fails: its membership is out of
date. It is repeated with the new membership if all its partitions are still the member's.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import Act
from smq.client.kafka.admin import coordinator
from smq.client.kafka.cluster import DEADLINE_SECONDS, RETRY_SECONDS, Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import OFFSET_COMMIT, OFFSET_FETCH
from smq.client.names import TopicPartition, by_topic
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

Result = TypeVar("Result")


class Membership(NamedTuple):
    """The membership that a commit is made with. By default: none, for a group without members."""

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


SHARED_ANEW = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})

Renewed = Callable[[], Membership | None]
"""The membership to commit with after a rebalance; None: a partition has been reassigned."""


def _nobody() -> None:
    """For commits without a membership."""


class Committing:
    """The committed offsets of a group. `every_s` is the interval of automatic commits, or None.

    _committed  the group's offsets as far as we know; used by the thread only
    """

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        group: str,
        every_s: float | None,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._open_cluster = open_cluster
        self._group = group
        self._every_s = every_s
        self._deadline_seconds = deadline_seconds
        self._due_at = self._clock.monotonic_s() + (every_s or 0)
        self._unasked = _done()  # The last automatic commit.
        self._committed: dict[TopicPartition, int] = {}
        self._cluster: Cluster | None = None
        self._thread = ThreadPoolExecutor(1, "smq-commits")

    def close(self) -> None:
        """Wait for commits in flight."""
        self._thread.shutdown()
        if self._cluster is not None:
            self._cluster.close()

    def settle(self) -> None:
        """Wait for commits in flight, whether they succeed or fail."""
        self._thread.submit(lambda: None).result()

    @property
    def is_automatic(self) -> bool:
        """Whether there are automatic commits."""
        return self._every_s is not None

    def is_due(self) -> bool:
        """Whether an automatic commit is due, and the last one is done."""
        is_time = self._every_s is not None and self._clock.monotonic_s() >= self._due_at
        return is_time and self._unasked.done()

    def commit_if_moved(
        self,
        offsets: Mapping[TopicPartition, int],
        membership: Membership,
        renewed: Renewed = _nobody,
    ) -> "Future[None]":
        """Commit the offsets that differ from the group's once no commit is in flight."""
        self._due_at = self._clock.monotonic_s() + (self._every_s or 0)
        self._unasked = self._thread.submit(self._commit_moved, offsets, membership, renewed)
        return self._unasked

    def forget(self, name: TopicPartition) -> None:
        """A partition has no committed offset any more."""
        self._thread.submit(self._committed.pop, name, None)

    def fetch(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets, of the partitions that have one."""
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
            for topic, partitions in by_topic(names).items()
        ]
        return self._thread.submit(self._retrying, partial(self._fetch, topics)).result()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        membership: Membership,
        renewed: Renewed = _nobody,
    ) -> "Future[None]":
        """Commit these; the future raises BrokerError on failure."""
        if not offsets:
            return _done()
        return self._thread.submit(self._commit_as, offsets, membership, renewed)

    def _commit_moved(
        self, offsets: Mapping[TopicPartition, int], membership: Membership, renewed: Renewed
    ) -> None:
        moved = {name: at for name, at in offsets.items() if self._committed.get(name) != at}
        if moved:
            self._commit_as(moved, membership, renewed)

    def _commit_as(
        self, offsets: Mapping[TopicPartition, int], membership: Membership, renewed: Renewed
    ) -> None:
        deadline = self._clock.monotonic_s() + self._deadline_seconds
        while True:
            try:
                self._retrying(partial(self._commit, self._request(offsets, membership)))
                break
            except BrokerError as error:
                again = renewed() if error.code in SHARED_ANEW else None
                if again is None or self._clock.monotonic_s() > deadline:
                    raise
            if again == membership:  # The rebalance is not over.
                self._clock.sleep(RETRY_SECONDS)
            membership = again
        self._committed |= offsets

    def _request(
        self, offsets: Mapping[TopicPartition, int], membership: Membership
    ) -> OffsetCommitRequest:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=each,
                        committed_offset=offsets[TopicPartition(topic, each)],
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]
        return OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=membership.generation_id,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=topics,
        )

    def _retrying(self, work: Callable[[], Result]) -> Result:
        if self._cluster is None:
            self._cluster = self._open_cluster()
        return self._cluster.retrying(work)

    def _coordinator(self) -> KafkaConnection:
        assert self._cluster is not None
        return self._cluster.broker(coordinator(self._cluster, self._group))

    def _fetch(self, topics: list[OffsetFetchRequestTopics]) -> dict[TopicPartition, int]:
        self._committed.clear()  # Others may have committed meanwhile.
        asked = OffsetFetchRequestGroup(group_id=self._group, topics=topics)
        [group] = self._coordinator().ask(OFFSET_FETCH, OffsetFetchRequest(groups=[asked])).groups
        check(group.error_code, act=Act("read offsets of", group=self._group))
        found = {}
        for topic in group.topics:
            for each in topic.partitions:
                check(each.error_code, act=Act("read offsets of", topic.name, self._group))
                if each.committed_offset >= 0:
                    name = TopicPartition(topic.name, each.partition_index)
                    found[name] = each.committed_offset
        return found

    def _commit(self, request: OffsetCommitRequest) -> None:
        response = self._coordinator().ask(OFFSET_COMMIT, request)
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code, act=Act("commit offsets of", topic.name, self._group))


def _done() -> "Future[None]":
    done: Future[None] = Future()
    done.set_result(None)
    return done
