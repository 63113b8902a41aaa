"""Payloads: which of them records name, and the sweep of those that none names.

A payload may be named by new records for `smq.reference.orphan.ms` after its upload
(smq.shard.references). Then it lives on by the records that name it: in sealed segments, whose
payloads the manifest knows, and in what is not sealed yet, which is read. So a sweep

    takes the payloads of a page that are old enough to be named no more
    asks the shards where their partitions are sealed up to, and where they end
    reads what lies between
    looks in the manifest, after that: what was sealed meanwhile is found twice, not missed
    deletes what nobody names

and a death between any two leaves everything to the next one. What lies between is read whether
anybody may see it yet or not: a log that cannot be written, for its disk is full, keeps the
payloads that its last records name, and not those whose going would make room. What of a partition
is not there to be read keeps all payloads of its topic.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import NamedTuple

from shm.arrow import read_only
from shm.kernels.record.records import B_AT, B_END
from shm.kernels.record.references import may_refer
from smq.filer.store import Facts, Store
from smq.model.errors import NotFound, PeerError, StoreError
from smq.model.references import PREFIX, Reference, directory_of
from smq.sealer.decode import Kind, Piece, cut
from smq.sealer.ports import ManifestPort, ShardPort
from smq.wire.internal.messages import Owner
from smq.wire.references import Handle, handles_in, handles_of_batch

CHUNK_BYTES = 1024 * 1024  # Asked of the shard at a time: its loop is held by it.
LOOKS_AT_ONCE = 16  # S3 takes its time for each, and minds more of them little.
CLOCK_STEP_MS = 1000  # The clock may be set back by this between a shard's look at it and ours.


def look_up(store: Store, keys: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Of payloads the length and when they were uploaded; None: there is none.

    What the store does not say is left out, and what would have been asked after that. Raises
    StoreError: it says nothing.
    """
    found: dict[str, tuple[int, int] | None] = {}
    failure: StoreError | None = None
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as threads:
        looks = {key: threads.submit(_look, store, key) for key in keys}
        for key, look in looks.items():
            try:
                found[key] = look.result()
            except CancelledError:
                continue
            except StoreError as reason:
                failure = failure or reason
                threads.shutdown(wait=False, cancel_futures=True)
    if failure and not found:
        raise failure
    return found


def _look(store: Store, key: str) -> tuple[int, int] | None:
    try:
        facts = store.head(key)
    except NotFound:
        return None
    return facts.length, facts.modified_ms


def payloads_of(piece: Piece) -> Iterator[str]:
    """The ids of the payloads that records of a piece name."""
    for handle in _handles(piece):
        if isinstance(handle.reference, Reference):
            yield handle.reference.id


def _handles(piece: Piece) -> Iterator[Handle]:
    if piece.kind is Kind.ROWS:
        yield from handles_in(piece.arena, piece.columns, piece.headers)
    elif piece.kind is Kind.RAW:
        data, first = read_only(piece.batches), int(piece.facts[B_AT, 0])
        for at, end in (piece.facts[[B_AT, B_END]] - first).T.tolist():
            if may_refer(data, at, end - at):  # A malformed one that may was never appended.
                yield from handles_of_batch(data, at, end) or ()


class PayloadSweep(NamedTuple):
    """The job, with whom it talks to: `shard_of` a node is its port."""

    store: Store
    shard_of: Callable[[int], ShardPort]
    manifest: ManifestPort

    def sweep(
        self, files: Iterable[Facts], owners: Sequence[Owner], now_ms: int, gone_before_ms: int
    ) -> list[str]:
        """Of these payloads delete those that no record names or will; their keys.

        Those of topics that are not among the owners go if they are older than `gone_before_ms` and
        there still is no such topic: owners were listed when the sweep was ordered, it may have
        waited since, and records may name payloads that are older than their topic.
        Raises StoreError, PeerError: what stopped one topic's sweep, when all others are swept.
        """
        by_directory = {directory_of(each.namespace, each.topic): each for each in owners}
        old: dict[str, list[str]] = {}
        for facts in files:
            directory = facts.key[: facts.key.rindex("/") + 1]
            owner = by_directory.get(directory)
            before_ms = gone_before_ms
            if owner is not None:
                before_ms = now_ms - owner.orphan_ms - CLOCK_STEP_MS
            if facts.modified_ms < before_ms:
                old.setdefault(directory, []).append(facts.key)
        swept: list[str] = []
        failures: list[StoreError | PeerError] = []
        for directory, keys in old.items():
            owner = by_directory.get(directory)
            try:
                for key in self._nameless(directory, owner, keys):
                    self.store.delete(key)
                    swept.append(key)
            except (StoreError, PeerError) as reason:
                failures.append(reason)
        if failures:
            raise failures[0]
        return swept

    def _nameless(self, directory: str, owner: Owner | None, keys: list[str]) -> Iterator[str]:
        """Those of the old payloads in a directory that may be deleted as soon as they are told."""
        if owner is not None:
            yield from self._unnamed(owner, keys)
            return
        namespace, _, topic = directory.removeprefix(PREFIX)[:-1].rpartition("/")
        for key in keys:
            if self.manifest.has_topic(namespace, topic):
                return
            yield key

    def _unnamed(self, owner: Owner, keys: list[str]) -> list[str]:
        """Those of a topic's old payloads that no record names."""
        ids = self._unsealed_names(owner) if (keys := self._not_in_segments(keys)) else None
        if ids is None:
            return []
        return [key for key in self._not_in_segments(keys) if _id(key) not in ids]

    def _not_in_segments(self, keys: list[str]) -> list[str]:
        named = self.manifest.named_payloads([_id(key) for key in keys])
        return [key for key in keys if _id(key) not in named]

    def _unsealed_names(self, owner: Owner) -> set[str] | None:
        """The payloads that records of a topic name which are not sealed.

        None: some of them cannot be read.
        """
        names: set[str] = set()
        for number, node in owner.partitions:
            shard = self.shard_of(node)
            position, end = shard.ends(number)
            while position < end:
                batches = shard.tail(number, position, CHUNK_BYTES)
                if not batches:
                    return None
                for piece in cut(batches):
                    names.update(payloads_of(piece))
                    position = piece.end_offset
        return names


def _id(key: str) -> str:
    return key[key.rindex("/") + 1 :]
