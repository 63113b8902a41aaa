"""A transaction: its producer's records, and offsets of groups, become visible together or never.

    with client.producer(transactional_id="copy-1") as producer:
        with producer.transaction() as transaction:
            producer.send("sums", b"3")
            transaction.commit_offsets(consumer)

It is committed at the end of the block, and aborted if the block raises.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from smq.client.arguments import offsets_by_partition, text
from smq.client.errors import AuthenticationFailed, TransactionAborted
from smq.client.names import GroupOffsets, OffsetsIn
from smq.client.producing.outbox import Outbox
from smq.client.producing.parts import Parts
from smq.client.producing.transactions.coordinator import TransactionCoordinator
from smq.client.producing.transactions.enlisting import Enlisting
from smq.model.errors import BrokerError, ErrorCode

logger = logging.getLogger(__name__)

OPEN_ONE = "this producer has a transactional id: send within `with producer.transaction():`"


class CommittingConsumer(Protocol):
    """A consumer whose group commits offsets."""

    def group_offsets(self, offsets: OffsetsIn | None) -> GroupOffsets:
        """Offsets, by default its positions, with its group and its membership there."""


class Waiting(Protocol):
    """A request that waits for the producer's records."""

    def send_and_wait(self, timeout_s: float | None) -> None:
        """Send all open parcels and wait until all is resolved."""

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Sleep until the condition holds."""


class Transacting:
    """The transactions of a producer with a transactional id, one after the other.

    _unsettled  the last one's end, if its outcome is unknown: it is repeated before the next begins
    """

    def __init__(
        self, parts: Parts, coordinator: TransactionCoordinator, outbox: Outbox, waiting: Waiting
    ) -> None:
        self._state, self._unreported = parts.state, parts.unreported
        self._accumulator = parts.accumulator
        self._coordinator, self._outbox, self._waiting = coordinator, outbox, waiting
        self.enlisting = Enlisting(parts.state, coordinator, parts.accumulator.queues)
        self._unsettled: bool | None = None
        self._has_offsets = False
        self._ending = threading.RLock()  # A call that was cancelled may still end the last one.
        parts.state.why_not = OPEN_ONE

    def begin(self) -> None:
        """Begin a transaction. Raises RuntimeError if one is open, ProducerFenced, BrokerError."""
        with self._ending:
            self._begin()

    def _begin(self) -> None:
        if self._unsettled is not None:
            self._settle(committed=self._unsettled)
        with self._state.lock:
            if self._state.why_not is None:
                raise RuntimeError("a producer has one transaction at a time, and one is open")
            self._state.check_closed()
            self._unreported.first_error, self._has_offsets = None, False
            self._state.why_not = None

    def commit_offsets(self, group: GroupOffsets) -> None:
        """Commit a group's offsets with the transaction."""
        if self._state.why_not is not None:
            raise RuntimeError("this transaction is over")
        if group.offsets:
            self._has_offsets = True
            self._coordinator.commit_offsets(group)

    def commit(self) -> None:
        """Send the remaining records and commit, or abort and raise. See `Transaction`."""
        with self._ending:
            self._commit()

    def _commit(self) -> None:
        with self._state.lock:
            self._state.why_not = OPEN_ONE
        try:
            self._waiting.send_and_wait(None)
        except BaseException:
            self._abort()
            raise
        with self._state.lock:
            self._unreported.note(self._accumulator.pending.changed)
            error = self._unreported.first_error
        if error is None:
            self._end(committed=True)
            return
        self._abort()  # If we were fenced, it says so.
        raise TransactionAborted(f"the transaction was aborted: {error}") from error

    def abort(self) -> None:
        """Drop the remaining records, and abort. Raises ProducerFenced, BrokerError."""
        with self._ending:
            self._abort()

    def _abort(self) -> None:
        reason = TransactionAborted("the transaction was aborted before this was acknowledged")
        with self._state.lock:
            self._state.why_not = OPEN_ONE
            for topic in self._outbox.open_parcels.topics():
                self._outbox.close_open(topic)
            self._accumulator.abandon(reason)
            self._outbox.wake()
        try:
            self._waiting.wait(lambda: not self._accumulator.pending, None)
        finally:
            with self._state.lock:
                self._accumulator.abandon(None)
                self._unreported.note(self._accumulator.pending.changed)
                self._unreported.take()  # The caller knows.
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        if not (self._has_offsets or self._accumulator.queues.has_enlisted()):
            return  # The coordinator knows nothing of it.
        self._settle(committed=committed)

    def _settle(self, *, committed: bool) -> None:
        self._unsettled = committed
        try:
            found = self._coordinator.end(committed=committed)
        except AuthenticationFailed:
            self._unsettled = False  # Nobody was asked to commit it, and so nobody will be.
            raise
        except BrokerError as refusal:
            if not committed or refusal.code != ErrorCode.TRANSACTION_ABORTABLE:
                raise
            self._settle(committed=False)
            lost = "the transaction was aborted: the broker may have lost some of its records"
            raise TransactionAborted(lost) from refusal
        if found is None and not committed:
            found = self._coordinator.begin()
        with self._state.lock:
            if found is None:
                self._accumulator.queues.bar()
            else:
                self._accumulator.begin_as(*found)
        self._unsettled = None

    def close(self) -> None:
        """The producer closes: abort an open transaction."""
        if self._state.why_not is None:
            with suppress(BrokerError):  # It is aborted after its timeout.
                self.abort()
        self._coordinator.close()


class Transaction:
    """See above; `with` begins it. Also raised at the end of the block, by the commit:

    TransactionAborted  a record failed, or the broker may have lost one; nothing is committed
    ProducerFenced      another producer has the transactional id by now, or the transaction was
                        open for longer than its timeout; nothing is committed
    BrokerUnavailable   no broker answered, or the answer was lost and none takes our login any
                        more: it is unknown whether it is committed. The next transaction begins
                        once that is settled
    AuthenticationFailed
                        no broker took our login before it was asked to commit; nothing is committed
    """

    def __init__(self, transacting: Transacting) -> None:
        self._transacting = transacting

    def commit_offsets(
        self, group: "CommittingConsumer | str", offsets: OffsetsIn | None = None
    ) -> None:
        """Commit offsets of a group if, and when, the transaction is committed.

        `group` is a consumer, whose positions are committed unless `offsets` are given, or the name
        of a group without members. Raises ValueError, BrokerError: ILLEGAL_GENERATION … if the
        group has rebalanced.
        """
        if isinstance(group, str):
            if offsets is None:
                raise ValueError("commit_offsets: a group's name alone has no offsets; give them")
            named = offsets_by_partition("offsets", offsets)
            self.commit_group(GroupOffsets(text("group", group), named))
        else:
            self.commit_group(group.group_offsets(offsets))

    def commit_group(self, group: GroupOffsets) -> None:
        """As `commit_offsets`, with what a consumer's `group_offsets` gave."""
        self._transacting.commit_offsets(group)

    def __enter__(self) -> Self:
        self._transacting.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self._transacting.commit()
            return
        try:
            self._transacting.abort()
        except Exception as reason:  # noqa: BLE001  (The error of the block is the one to tell.)
            logger.warning("a transaction was not aborted, and ends with its timeout: %s", reason)
