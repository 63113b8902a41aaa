"""The anomalies in a history of transactions, by the names that Jepsen gives them.

    lost write             an acknowledged copy that later ones have overtaken: it is never read
    unseen                 an acknowledged copy that a reader of everything did not get
    duplicate              an item that a topic has twice
    aborted read (G1a)     a reader got a copy of an aborted transaction, or a committed transaction
                           has read one
    intermediate read (G1b)  a copy of an attempt that never wrote it
    circular flow (G1c)    transactions that have read of each other
    torn transaction       some copies of a transaction are there and others are not, or offsets
                           were committed without the copies of what they passed
    non-monotonic poll     a reader's offsets of a partition do not rise
    inconsistent offsets   two readers saw different records at one offset
    reordered              a partition has a source's items in another order

G0, a cycle of writes alone, is no anomaly: transactions of different producers may interleave
differently in different partitions, and Kafka promises no more.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from smq.testing.transactions.history import Attempt, Copy, Fate, History, Item, Seen


class Anomaly(NamedTuple):
    """See above."""

    kind: str
    words: str


def anomalies(history: History) -> list[Anomaly]:
    """Every anomaly that the history shows."""
    found: list[Anomaly] = []
    for check in CHECKS:
        found += check(history)
    return found


def _non_monotonic_polls(history: History) -> Iterator[Anomaly]:
    for reader, reads in history.reads.items():
        last: dict[tuple[str, int], int] = {}
        for seen in reads:
            place = seen.topic, seen.partition
            if seen.offset <= last.get(place, -1):
                words = f"{reader}: {place} offset {seen.offset} after {last[place]}"
                yield Anomaly("non-monotonic poll", words)
            last[place] = seen.offset


def _inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    known: dict[tuple[str, int, int], Copy] = {}
    for reader, reads in history.reads.items():
        for seen in reads:
            copy = known.setdefault(seen[:3], seen.copy)
            if copy != seen.copy:
                yield Anomaly("inconsistent offsets", f"{reader}: {seen}, elsewhere {copy}")


def _aborted_reads(history: History) -> Iterator[Anomaly]:
    for seen in _distinct(history):
        for attempt in (seen.copy.attempt, seen.copy.origin):
            tried = None if attempt is None else history.tried.get(attempt)
            if tried is not None and tried.fate == Fate.ABORTED:
                yield Anomaly("aborted read", f"{seen} of {attempt}, which was aborted")


def _intermediate_reads(history: History) -> Iterator[Anomaly]:
    for seen in _distinct(history):
        tried = history.tried.get(seen.copy.attempt)
        wrote = tried is not None and tried.topic == seen.topic and seen.copy.item in tried.items
        if not wrote:
            yield Anomaly("intermediate read", f"{seen}: its attempt never wrote it")


def _circular_flows(history: History) -> Iterator[Anomaly]:
    """Cycles of 'has read a copy of': a depth-first walk without recursion."""
    flows = defaultdict[Attempt, set[Attempt]](set)
    for seen in _distinct(history):
        if seen.copy.origin is not None:
            flows[seen.copy.attempt].add(seen.copy.origin)
    done: set[Attempt] = set()
    for start in list(flows):
        path, on_path = [iter((start,))], list[Attempt]()
        while path:
            attempt = next(path[-1], None)
            if attempt is None:
                path.pop()
                done |= {on_path.pop()} if on_path else set()
            elif attempt in on_path:
                yield Anomaly("circular flow", f"{on_path[on_path.index(attempt) :]}")
            elif attempt not in done:
                on_path.append(attempt)
                path.append(iter(flows.get(attempt, ())))


def _duplicates(history: History) -> Iterator[Anomaly]:
    places = defaultdict[tuple[str, Item], set[tuple[int, int]]](set)
    for seen in _distinct(history):
        places[seen.topic, seen.copy.item].add((seen.partition, seen.offset))
    for (topic, item), found in places.items():
        if len(found) > 1:
            yield Anomaly("duplicate", f"{topic} has {item} at {sorted(found)}")


def _reordered(history: History) -> Iterator[Anomaly]:
    for reader, reads in history.reads.items():
        last: dict[tuple[str, int, int], int] = {}
        for seen in reads:
            item = seen.copy.item
            key = seen.topic, seen.partition, item.partition
            if item.number < last.get(key, -1):
                yield Anomaly("reordered", f"{reader}: {seen} after item {last[key]}")
            last[key] = max(item.number, last.get(key, -1))


def _missing_writes(history: History) -> Iterator[Anomaly]:
    """Lost and unseen writes of committed attempts, according to the readers of everything."""
    for reader in history.whole:
        there = {(seen.topic, seen.copy.item) for seen in history.reads[reader]}
        ends = defaultdict[tuple[str, int], int](int)
        for topic, item in there:
            ends[topic, item.partition] = max(ends[topic, item.partition], item.number)
        for attempt, tried in history.tried.items():
            if tried.fate != Fate.COMMITTED:
                continue
            for item in tried.items:
                if (tried.topic, item) not in there:
                    is_passed = item.number < ends[tried.topic, item.partition]
                    kind = "lost write" if is_passed else "unseen"
                    yield Anomaly(kind, f"{reader}: {item} of {attempt} in {tried.topic}")


def _torn_transactions(history: History) -> Iterator[Anomaly]:
    for reader in history.whole:
        there = defaultdict[Attempt, set[Item]](set)
        copied = defaultdict[str, set[Item]](set)
        for seen in history.reads[reader]:
            there[seen.copy.attempt].add(seen.copy.item)
            copied[seen.topic].add(seen.copy.item)
        for attempt, items in there.items():
            tried = history.tried.get(attempt)
            if tried is not None and not set(tried.items) <= items:
                yield Anomaly("torn transaction", f"{reader}: {attempt} has only {sorted(items)}")
        for topic in {tried.topic for tried in history.tried.values()}:
            for partition, count in history.sources.items():
                items = {Item(partition, number) for number in range(count)}
                if missing := items - copied[topic]:
                    words = f"{len(missing)} items such as {min(missing)} were passed over"
                    yield Anomaly("torn transaction", f"{reader}: {topic}: {words}")


def _distinct(history: History) -> Iterator[Seen]:
    """The records that any reader saw, each once."""
    yield from {seen for reads in history.reads.values() for seen in reads}


CHECKS = (
    _non_monotonic_polls,
    _inconsistent_offsets,
    _aborted_reads,
    _intermediate_reads,
    _circular_flows,
    _duplicates,
    _reordered,
    _missing_writes,
    _torn_transactions,
)
