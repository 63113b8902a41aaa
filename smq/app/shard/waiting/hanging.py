"""Finds hanging transactions: open in a shard, but unknown to the coordinator.

A power loss may take a marker from a log after the coordinator has recorded that all are written.
So a shard asks about transactions that it finds open at its start, and about those open for long.
The coordinator knows a transaction from before its first append until its last marker is durable:
one that it does not know is aborted here.

A walk visits all open transactions, step by step, and asks about those of each step that are old
enough, or have been open since before the start: the next transaction of the same producer and
epoch may have hidden that the marker is lost. The first walk asks about all, and is repeated until
it has come through. Where the producer has appended since the question, the answer is about what
was before: the next walk asks again.
"""

from collections.abc import Iterator
from functools import partial

from smq.app.process import clock
from smq.app.process.peers import Peers
from smq.log.files.checkpoint import Open
from smq.shard.markers import abort_open
from smq.shard.shard import Shard
from smq.wire.internal.form import Failed
from smq.wire.internal.transactions import FindTransactions, OpenProducer

ASK_AFTER_MS = 60_000  # The default of clients' transaction.timeout.ms: most have ended by then.
ASK_EVERY_MS = 10_000
ASKED_MAX = 300  # At a time: to abort them all takes the loop some milliseconds.
WALKED_MAX = 5000  # Likewise, to visit them.


class Hanging:
    """Checks the open transactions of one shard."""

    def __init__(self, shard: Shard, peers: Peers) -> None:
        self._shard, self._peers = shard, peers
        self._next_ms, self._started_ms = 0, clock.monotonic_ms()
        self._is_asking = self._has_asked_all = False
        self._walk: Iterator[Open] | None = None
        self._has_failed = False  # This walk: something was not told, or not aborted.

    def look(self) -> None:
        """Ask about long-open transactions, and once about all. Call about once a second."""
        now_ms = clock.monotonic_ms()
        if self._is_asking or now_ms < self._next_ms:
            return
        if self._walk is None:
            self._walk, self._has_failed = self._opened(), False
        old_ms = max(now_ms - ASK_AFTER_MS, self._started_ms)
        before_ms = old_ms if self._has_asked_all else now_ms
        old, has_ended = self._next_old(self._walk, before_ms)
        if old:
            self._is_asking = True
            producers = [OpenProducer(each.producer_id, each.epoch) for each in old]
            told = partial(self._told, old, [self._newest(each) for each in old])
            self._peers.ask_coordinator(FindTransactions(producers), told)
        elif has_ended:
            self._end_walk(now_ms)

    @staticmethod
    def _next_old(walk: Iterator[Open], before_ms: int) -> tuple[list[Open], bool]:
        """The old ones of a walk's next step, and whether it has ended."""
        old: list[Open] = []
        for _ in range(WALKED_MAX):
            each = next(walk, None)
            if each is None:
                return old, True
            if each.since_ms <= before_ms:
                old.append(each)
            if len(old) == ASKED_MAX:
                break
        return old, False

    def _opened(self) -> Iterator[Open]:
        """All that are open when it comes to their partition."""
        for log in self._shard.logs.values():
            for number in log.transactions.numbers_with_open():
                yield from log.transactions.open_in(number)

    def _end_walk(self, now_ms: int) -> None:
        self._walk = None
        self._next_ms = now_ms + ASK_EVERY_MS
        self._has_asked_all |= not self._has_failed

    def _newest(self, each: Open) -> int:
        """The offset of the producer's newest batch; -1: it is not known."""
        led = self._shard.by_number(each.number)
        return -1 if led is None else led.log.producers.newest(each.number, each.producer_id)

    def _told(self, old: list[Open], newest: list[int], said: list[bool] | Failed) -> None:
        self._is_asking = False
        if isinstance(said, Failed) or len(said) != len(old):
            self._has_failed = True
            self._end_walk(clock.monotonic_ms())
            return
        unknown = [
            each
            for each, is_known, before in zip(old, said, newest, strict=True)
            if not is_known and self._newest(each) == before
        ]
        left = [each for each in unknown if not self._abort(each)]
        if left:
            self._has_failed = True
            self._end_walk(clock.monotonic_ms())
            self._has_asked_all = False
            self._next_ms = 0  # A log that could not be written is repaired soon.
        else:
            self.look()

    def _abort(self, hanging: Open) -> bool:
        """Abort it; returns whether it has ended."""
        led = self._shard.by_number(hanging.number)
        if led is None:
            return True
        transactions = led.log.transactions
        if transactions.open_of(hanging.number, hanging.producer_id) != hanging:
            return True  # Meanwhile.
        if not abort_open(self._shard, led, hanging, clock.now()):
            return False
        led.log.notices.append(
            f"{led.topic.name}, partition {led.topic.index_of(hanging.number)}: "
            f"aborted a transaction of producer {hanging.producer_id}, open since offset "
            f"{hanging.first_offset}, which the coordinator does not know"
        )
        return True
