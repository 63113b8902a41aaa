"""Committed offsets: how one is stored, who may commit it, and what takes it away.

*Stored.* One row for a group and a partition's number, so a topic that is created again has none of
the old one's. Rows are in the store alone and read from there. The last commit counts, whatever its
offset. One for an internal topic, which is always empty, is accepted and not kept. A commit is as
durable as its topics' records: it is synced before the answer if one of them is `disk`. A power
loss may revert others to older ones (docs/adr/a-commit-is-as-durable-as-its-topics.md).

*Who may commit.* Partitions that exist have offsets; the group is asked only if there is one, and
says the same of all (`Group`, event Commit). A member may commit in its generation, even while it
is told to rejoin, but not between joining and its assignment. A client that is no member may while
the group has no members; that creates the group if needed.

*In a transaction* that the group has joined, a member may also before its assignment, and a client
that names no member always. Offsets are pending until the end: who asks for stable offsets hears
that they are undecided, others get those before. A commit puts them in place, except where a later
one has arrived; an abort drops them (`transactions.endings`, some at a time).

*Deleted* are single offsets, with pending ones, of a group without members, or of consumers of
which none subscribes to the topic; and all those of an empty group, with the group. Those of a
deleted topic are not read any more, and go in portions (`cleaning`).
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from smq.coordinator.group_events import Commit
from smq.coordinator.groups import Groups
from smq.coordinator.subscriptions import CONSUMER, topics_of
from smq.coordinator.topics import Topics
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.coordinator.transactions.orders import FindPlace, has_synced
from smq.coordinator.transactions.transactions import Transactions
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.errors import BrokerError, ErrorCode
from smq.model.now import Now
from smq.model.setting import INT64_MAX
from smq.store.rows import CommittedOffset
from smq.store.store import Store

PAGE_OFFSETS = 300  # Some milliseconds, as the next.
DELETED_A_STEP = 500  # Pending ones too: many transactions may have one of a partition.
UNDECIDED = CommittedOffset(-1, -1, "", 1)
"""This very object stands for an offset that waits for a transaction's end."""


class Place(NamedTuple):
    """A partition as a client names it. `topic`: None if there is none."""

    topic: Topic | None
    partition: int

    @property
    def number(self) -> int | None:
        """The partition's number, negative in an internal topic; None: it does not exist."""
        if self.topic is None or not 0 <= self.partition < self.topic.partition_count:
            return None
        return self.topic.partition_numbers[self.partition]


class Offered(NamedTuple):
    """An offset that a client commits."""

    place: Place
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
        topics: Topics,
        groups: Groups,
        transactions: Transactions,
        find_place: FindPlace,
        config: Config,
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._transactions, self._find_place = transactions, find_place
        self._config = config

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on."""
        self._config = config

    # Commit

    def commit(
        self,
        group_id: str,
        by: Commit,
        offered: Sequence[Offered],
        now: Now,
        retention_ms: int | None = None,
    ) -> list[ErrorCode]:
        """Commit offsets; returns an error for each. Afterwards each is kept so long, if the
        client says so."""
        refusal = ErrorCode.NONE
        if any(each.place.number is not None for each in offered):
            refusal = self._refusal(group_id, by, None, now)
        expire_ms = None
        if retention_ms is not None:
            expire_ms = min(now.monotonic_ms + retention_ms, INT64_MAX)
        taken: dict[int, CommittedOffset] = {}
        errors = [self._take(each, refusal, taken, now, expire_ms) for each in offered]
        lazy = not has_synced(taken, self._find_place)
        self._store.commit_offsets(group_id, taken, lazy=lazy)
        return errors

    def commit_within(
        self, txn: Within, group_id: str, by: Commit, offered: Sequence[Offered], now: Now
    ) -> list[ErrorCode]:
        """Commit offsets when a transaction does; returns an error for each."""
        refusal = self._refusal(group_id, by, txn, now)
        taken: dict[int, CommittedOffset] = {}
        errors = [self._take(each, refusal, taken, now, None) for each in offered]
        if taken:
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

    def _take(
        self,
        offered: Offered,
        refusal: ErrorCode,
        taken: dict[int, CommittedOffset],
        now: Now,
        expire_ms: int | None,
    ) -> ErrorCode:
        """Take one partition's offset or refuse it."""
        number, metadata = offered.place.number, offered.metadata or ""
        if number is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if refusal is not ErrorCode.NONE:
            return refusal
        if len(metadata) > self._config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if number >= 0:
            taken[number] = CommittedOffset(
                offered.offset, offered.leader_epoch, metadata, now.monotonic_ms, expire_ms
            )
        return ErrorCode.NONE

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

    def delete(self, group_id: str, places: Sequence[Place]) -> Iterator[list[ErrorCode]]:
        """Delete offsets some at a time: [] while there are more, at last an error for each place.
        Raises BrokerError before the first."""
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.find(group_id)
        if len(group.roster) > 0 and group.protocol_type != CONSUMER:
            raise BrokerError(ErrorCode.NON_EMPTY_GROUP)
        read = topics_of(group)
        errors = [_undeletable(place, read) for place in places]
        numbers = [
            number
            for place, error in zip(places, errors, strict=True)
            if error is ErrorCode.NONE and (number := place.number) is not None
        ]
        tables = self._store.transactions
        while tables.forget_offsets(group_id, numbers, DELETED_A_STEP):
            yield []
        self._store.delete_offsets(group_id, numbers)
        yield errors


def _undeletable(place: Place, read: Collection[str] | None) -> ErrorCode:
    """Why a partition's offset stays, or NONE. `read`: what the members read, None if unknown."""
    if place.topic is None or place.number is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if read is None or place.topic.name in read:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE
