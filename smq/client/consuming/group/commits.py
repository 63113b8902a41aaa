"""What a group has committed: asked, and told, over a connection and in a thread of its own.

A thread, so that a commit need not be waited for; one, so that commits arrive in their order, and
whoever comes behind them knows what became of them.

A member's group may share anew while a commit is on its way, which then comes as somebody who is no
longer. If all its partitions are the member's as before, it is made again as who the member is now.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.kafka.admin import coordinator
from smq.client.kafka.cluster import DEADLINE_SECONDS, RETRY_SECONDS, Cluster, check
from smq.client.kafka.connection import Connection
from smq.client.kafka.questions import OFFSET_COMMIT, OFFSET_FETCH
from smq.client.names import TopicPartition, by_topic
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

Result = TypeVar("Result")


class Membership(NamedTuple):
    """As whom a commit is made; these values are nobody's."""

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


SHARED_ANEW = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})

Renewed = Callable[[], Membership | None]
"""As whom to commit when the group has shared anew; None: of what is another's by now."""


def _nobody() -> None:
    """Whoever commits has no partitions of a group."""


class Committing:
    """The committed offsets of a group. `every_s`: how often to commit unasked, None: never.

    _committed  what the group has, as far as we know; only the thread looks at it
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
        self._unasked = _done()  # What was committed last without being asked.
        self._committed: dict[TopicPartition, int] = {}
        self._cluster: Cluster | None = None
        self._thread = ThreadPoolExecutor(1, "smq-commits")

    def close(self) -> None:
        """Wait for what is on its way."""
        self._thread.shutdown()
        if self._cluster is not None:
            self._cluster.close()

    def settle(self) -> None:
        """Wait for what is on its way, whatever becomes of it."""
        self._thread.submit(lambda: None).result()

    @property
    def is_automatic(self) -> bool:
        """Whether to commit without being asked."""
        return self._every_s is not None

    def is_due(self) -> bool:
        """Whether it is time to commit without being asked, and the last time is over."""
        is_time = self._every_s is not None and self._clock.monotonic_s() >= self._due_at
        return is_time and self._unasked.done()

    def commit_if_moved(
        self,
        offsets: Mapping[TopicPartition, int],
        membership: Membership,
        renewed: Renewed = _nobody,
    ) -> "Future[None]":
        """Commit those of these that are not committed when all that is on its way has come."""
        self._due_at = self._clock.monotonic_s() + (self._every_s or 0)
        self._unasked = self._thread.submit(self._commit_moved, offsets, membership, renewed)
        return self._unasked

    def forget(self, name: TopicPartition) -> None:
        """Of this partition nothing is committed any more."""
        self._thread.submit(self._committed.pop, name, None)

    def fetch(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets of those of these partitions that have one."""
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in by_topic(names).items()
        ]
        return self._thread.submit(self._retrying, partial(self._fetch, topics)).result()

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        membership: Membership,
        renewed: Renewed = _nobody,
    ) -> "Future[None]":
        """Commit these; the future has the BrokerError if it fails."""
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
            if again == membership:  # The group is still about it.
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

    def _coordinator(self) -> Connection:
        assert self._cluster is not None
        return self._cluster.broker(coordinator(self._cluster, self._group))

    def _fetch(self, topics: list[OffsetFetchRequestTopic]) -> dict[TopicPartition, int]:
        self._committed.clear()  # Others may have committed since.
        request = OffsetFetchRequest(group_id=self._group, topics=topics)
        response = self._coordinator().ask(OFFSET_FETCH, request)
        check(response.error_code)
        found = {}
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code)
                if each.committed_offset >= 0:
                    name = TopicPartition(topic.name, each.partition_index)
                    found[name] = each.committed_offset
        return found

    def _commit(self, request: OffsetCommitRequest) -> None:
        response = self._coordinator().ask(OFFSET_COMMIT, request)
        for topic in response.topics:
            for each in topic.partitions:
                check(each.error_code)


def _done() -> "Future[None]":
    done: Future[None] = Future()
    done.set_result(None)
    return done
