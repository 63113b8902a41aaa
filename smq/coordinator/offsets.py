"""Committed offsets: how one is stored, who may commit it, and what ends it.

*Stored.* Each has a row in the store, and nowhere else, by group and by partition number: a topic
that is created again has none of its predecessor's. A later commit replaces an earlier one, even
with a lower offset. One for an internal topic, which is always empty, is accepted and not stored.
An offset is as durable as its topic's records: only a commit with a `disk` topic is synced before
the answer. A power loss may revert others (docs/adr/a-commit-is-as-durable-as-its-topics.md).

*Who may commit.* The group decides (`Group`, event Commit), once for all partitions of a request,
and only if one of them exists. A member may commit in its generation, even while it is told to
rejoin, but not between joining and its assignment. A client that is no member (generation -1) may
commit while the group has no members; that creates the group if needed.

*In a transaction*, which the group must have joined, a member may commit between joining and its
assignment too, and a client that names no member may always. The offset is pending until the end: a
request for stable offsets is told that it is undecided, any other gets the one before. A commit of
the transaction puts it in place unless a later one has arrived, an abort drops it; both some at a
time (`transactions.endings`).

*Deleted.* OffsetDelete takes committed and pending ones. If the group has members, they must be
consumers, and none may subscribe to the topic. DeleteGroups deletes all offsets of an empty group,
in steps if there are many; until the last step the group refuses all other requests. Offsets of a
deleted topic are no longer returned, and are deleted later (`cleaning`).

*Expired.* Every ten minutes, as in Kafka, a walk over all groups (`expiry`) takes what is too old:

    a group without members                       all of its offsets
    a stable group of consumers                   offsets of topics that no member subscribes to
    any other group with members                  none

It removes a group that has neither members nor offsets. Retention begins with the commit, or when
the group became empty if that was later. (In Kafka only the latter counts for a group that has had
members: an offset that an administrator commits later may expire at once.) A retention that the
client asks for begins with the commit. A group of SeaweedMQ's subscribers, who may come back after
30 days, has one of its own (`grpc.offsets.retention.minutes`), if that is longer. A pending offset
does not expire.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from smq.coordinator.deadlines import ALWAYS_MS
from smq.coordinator.expiry import Expiry
from smq.coordinator.group_events import Commit
from smq.coordinator.groups import Groups
from smq.coordinator.settings import Settings
from smq.coordinator.subscriptions import topics_of
from smq.coordinator.topics import Topics
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.coordinator.transactions.orders import FindPlace, has_synced
from smq.coordinator.transactions.transactions import Transactions
from smq.model.catalog import Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.group_protocols import CONSUMER
from smq.model.now import Now
from smq.model.setting import INT64_MAX
from smq.store.rows import CommittedOffset
from smq.store.store import Store

PAGE_OFFSETS = 300  # Some milliseconds, as the next.
DELETED_A_STEP = 500  # Pending ones too: many transactions may have one of a partition.
UNDECIDED = CommittedOffset(-1, -1, "", 1)
"""This very object stands for an offset that waits for a transaction's end."""


class NamedPartition(NamedTuple):
    """A partition as a client names it. `topic`: None if there is none."""

    topic: Topic | None
    partition: int

    @property
    def exists(self) -> bool:
        return self.topic is not None and 0 <= self.partition < self.topic.partition_count

    @property
    def number(self) -> int:
        """The number of a partition that exists; negative in an internal topic."""
        assert self.topic is not None
        return self.topic.partition_numbers[self.partition]


class Offered(NamedTuple):
    """An offset that a client commits. `topic`: None if there is none."""

    topic: Topic | None
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class Within(NamedTuple):
    """The transaction of a commit. `joins`: the group joins it so (KIP-890), or has joined it."""

    transactional_id: str
    producer: ProducerEpoch
    joins: bool


class CommittedOffsets:
    """The offsets of all groups."""

    def __init__(  # noqa: PLR0913, PLR0917  (the parts of the coordinator that have a say)
        self,
        store: Store,
        settings: Settings,
        topics: Topics,
        groups: Groups,
        transactions: Transactions,
        find_place: FindPlace,
        now: Now,
    ) -> None:
        self._store, self._settings, self._topics = store, settings, topics
        self._groups, self._transactions, self._find_place = groups, transactions, find_place
        self._expiry = Expiry(store, settings, topics, groups, now)

    # Commit

    def commit(  # noqa: PLR0913  (whose, what, when)
        self,
        group_id: str,
        by: Commit,
        offered: Sequence[Offered],
        now: Now,
        *,
        txn: Within | None = None,
        retention_ms: int = -1,
    ) -> list[ErrorCode]:
        """Commit offsets, or have a transaction do so; returns an error for each.

        `retention_ms`: as the client asks; negative: by the setting.
        """
        refusal = ErrorCode.NONE
        if txn is not None or any(map(_exists, offered)):
            refusal = self._refusal(group_id, by, txn, now)
        expire_ms = min(now.monotonic_ms + retention_ms, INT64_MAX) if retention_ms >= 0 else None
        errors, taken = self._taken(offered, refusal, now.monotonic_ms, expire_ms)
        if txn is None:
            lazy = not has_synced(taken, self._find_place)
            self._store.commit_offsets(group_id, taken, lazy=lazy)
        elif taken:
            self._transactions.put_offsets(txn.transactional_id, group_id, taken)
        return errors

    def _refusal(self, group_id: str, by: Commit, txn: Within | None, now: Now) -> ErrorCode:
        """The error of the transaction or the group, or NONE."""
        try:
            if txn is not None:
                self._join(txn, group_id, now)
            self._groups.handle(group_id, by, now)
        except BrokerError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def _join(self, txn: Within, group_id: str, now: Now) -> None:
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        transactional_id, producer, joins = txn
        if joins:
            groups = frozenset({group_id})
            self._transactions.add(transactional_id, producer, now, groups=groups)
        elif group_id not in self._transactions.verify(transactional_id, producer).groups:
            raise BrokerError(ErrorCode.TRANSACTION_ABORTABLE)

    def _taken(
        self,
        offered: Sequence[Offered],
        refusal: ErrorCode,
        now_ms: int,
        expire_ms: int | None,
    ) -> tuple[list[ErrorCode], dict[int, CommittedOffset]]:
        """An error for each offset, and those that are taken, by partition number."""
        errors, taken = list[ErrorCode](), dict[int, CommittedOffset]()
        metadata_max = self._settings.config.offset_metadata_max_bytes
        for topic, partition, offset, leader_epoch, metadata in offered:
            error, numbers = refusal, topic.partition_numbers if topic is not None else ()
            if not 0 <= partition < len(numbers):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif error is ErrorCode.NONE and metadata and len(metadata) > metadata_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            errors.append(error)
            if error is ErrorCode.NONE and numbers[partition] >= 0:  # Of no internal topic.
                taken[numbers[partition]] = CommittedOffset(
                    offset, leader_epoch, metadata or "", now_ms, expire_ms
                )
        return errors, taken

    # Fetch

    def fetch(
        self, group_id: str, numbers: Collection[int], *, stable: bool
    ) -> dict[int, CommittedOffset]:
        """The offsets of these partitions that the group has; `stable`: or UNDECIDED. Raises
        BrokerError."""
        self._groups.check_whole(group_id)
        found = self._store.committed_offsets_of(group_id, numbers)
        return found | self._undecided(group_id, numbers, stable=stable)

    def pages(self, group_id: str, *, stable: bool) -> Iterator[dict[int, CommittedOffset]]:
        """All committed offsets by number, page by page. Raises BrokerError before the first."""
        self._groups.check_whole(group_id)
        above, is_last = -1, False
        while not is_last:
            page = self._store.committed_offsets(group_id, above, PAGE_OFFSETS)
            is_last, above = len(page) < PAGE_OFFSETS, max(page, default=-1)
            places = self._topics.places  # Offsets of a deleted topic may be left.
            page = {number: each for number, each in page.items() if number in places}
            yield page | self._undecided(group_id, page, stable=stable)

    def _undecided(
        self, group_id: str, numbers: Collection[int], *, stable: bool
    ) -> dict[int, CommittedOffset]:
        found = self._store.transactions.undecided(group_id, numbers) if stable else ()
        return dict.fromkeys(found, UNDECIDED)

    # Delete

    def delete(self, group_id: str, places: Sequence[NamedPartition]) -> Iterator[list[ErrorCode]]:
        """Delete offsets some at a time: [] while there are more, at last an error for each place.
        Raises BrokerError before the first."""
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.find(group_id)
        if len(group.roster) > 0 and group.protocol_type != CONSUMER:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        read = topics_of(group)
        errors = [_undeletable(place, read) for place in places]
        those = zip(places, errors, strict=True)
        numbers = [place.number for place, error in those if error is ErrorCode.NONE]
        tables = self._store.transactions
        while tables.forget_offsets(group_id, numbers, DELETED_A_STEP):
            yield []
        self._store.delete_offsets(group_id, numbers)
        yield errors

    def delete_group(self, group_id: str) -> None:
        """Delete a group with its offsets: at once, or it is one of `groups.deleting` until ticks
        have done it. Raises BrokerError: there is none, or it has members."""
        if group_id not in self._groups.deleting:
            self._groups.begin_deletion(group_id)
            self._delete_some(group_id)

    def _delete_some(self, group_id: str) -> None:
        if not self._store.delete_some_offsets(group_id, DELETED_A_STEP):
            self._groups.forget(group_id)

    # Time

    def next_wake_ms(self) -> int:
        """The earliest time when `tick` has something to do (monotonic)."""
        return ALWAYS_MS if self._groups.deleting else self._expiry.next_wake_ms()

    def tick(self, now: Now) -> None:
        """Delete and expire some; if there are more, `next_wake_ms` is now."""
        for group_id in list(islice(self._groups.deleting, 1)):
            self._delete_some(group_id)
        self._expiry.tick(now)


def _exists(offered: Offered) -> bool:
    return NamedPartition(offered.topic, offered.partition).exists


def _undeletable(place: NamedPartition, read: Collection[str] | None) -> ErrorCode:
    """Why a partition's offset stays, or NONE. `read`: what the members read, None if unknown."""
    if place.topic is None or not place.exists:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if read is None or place.topic.name in read:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE
