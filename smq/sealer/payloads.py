"""Payloads: which ones records refer to, and the sweep of orphans.

New records may refer to a payload for `smq.reference.orphan.ms` after its upload
(smq.shard.references). After that, the records that refer to it keep it: those in sealed segments,
whose payloads the manifest lists, and unsealed ones, which the sweep reads. Times of the filer and
of a shard decide that, and clocks may be set. So a sweep condemns before it deletes:

    orphans     the payloads of a page that are too old for new references, and that no record names
    sightings   those that the last sweep has found too (smq.sealer.sightings)
    condemned   a file's time becomes 0: shards look at files; then in the coordinator's store
    settled     no check that has begun before goes on (SETTLED_MS)
    deleted     those that still no record names; then the condemnation is forgotten
    gone        what somebody else has deleted: a page's list says so, and it is forgotten too

Whether a record names a payload: the sweep

    asks the shards where their partitions are sealed up to, and where they end
    reads the records between
    then looks in the manifest: records sealed meanwhile are found twice, not missed (a file's
        payloads are named before its line)

A kill between any two steps leaves the rest to the next sweep. The sweep also reads records that
are not visible yet: a log that cannot be written because its disk is full keeps the payloads of its
last records, and still loses orphans, which makes room. If a part of a partition cannot be read,
all payloads of its topic stay.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple

from shm.arrow import read_only
from shm.kernels.record.records import B_AT, B_END
from shm.kernels.record.references import may_refer
from smq.filer.store import Facts, Store
from smq.model.errors import NotFound, PeerError, StoreError
from smq.model.references import PREFIX, SETTLED_MS, Reference, directory_of
from smq.sealer.decode import Kind, Piece, cut
from smq.sealer.pages import ListPage
from smq.sealer.ports import ManifestPort, ShardPort
from smq.store.payload_names import NAMES_A_STEP
from smq.wire.internal.messages import Owner
from smq.wire.references import Handle, handles_in, handles_of_batch

CHUNK_BYTES = 1024 * 1024  # Bytes of one question: answering it blocks the shard's loop.
LOOKS_AT_ONCE = 16  # S3 is slow for each, and handles many at once.
FAILURES_MAX = 3  # Of deletions: a store that is away takes half a minute for each.
CLOCK_STEP_MS = 1000  # How far the clock may be set back between a shard's reading and ours.


def look_up(store: Store, keys: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Length and upload time of payloads; None for one that does not exist.

    After a failure of the store the result lacks the rest. Raises StoreError if it lacks all.
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
    """The ids of the payloads that records of a piece refer to."""
    for handle in _handles(piece):
        if isinstance(handle.reference, Reference):
            yield handle.reference.id


def name_all(manifest: ManifestPort, path: str, ids: Iterable[str]) -> None:
    """The records of a file that will be a segment name these payloads: some at a time, in order,
    because the coordinator serves others too."""
    named = sorted(ids)
    for first in range(0, len(named), NAMES_A_STEP):
        manifest.name_payloads(path, named[first : first + NAMES_A_STEP])


def _handles(piece: Piece) -> Iterator[Handle]:
    if piece.kind is Kind.ROWS:
        yield from handles_in(piece.arena, piece.columns, piece.headers)
    elif piece.kind is Kind.RAW:
        data, first = read_only(piece.batches), int(piece.facts[B_AT, 0])
        for at, end in (piece.facts[[B_AT, B_END]] - first).T.tolist():
            if may_refer(data, at, end - at):  # A shard never appends a malformed one.
                yield from handles_of_batch(data, at, end) or ()


class PayloadSweep(NamedTuple):
    """The jobs, and the ports they use: `shard_of` gives a node's."""

    store: Store
    shard_of: Callable[[int], ShardPort]
    manifest: ManifestPort

    def orphans(
        self, files: Iterable[Facts], owners: Sequence[Owner], wall_ms: int, gone_before_ms: int
    ) -> list[str]:
        """Those of these payloads that no record names, and that are too old for new ones.

        Payloads of topics without an owner are if they are older than `gone_before_ms` and the
        topic still does not exist: the list of owners may be old by now, and records may refer to
        payloads that are older than their topic.
        Raises StoreError or PeerError of a topic that failed, after looking at all others.
        """
        by_directory = _by_directory(owners)
        old: list[str] = []
        for facts in files:
            owner = by_directory.get(_directory(facts.key))
            before_ms = gone_before_ms
            if owner is not None:
                before_ms = wall_ms - owner.orphan_ms - CLOCK_STEP_MS
            if facts.modified_ms < before_ms:
                old.append(facts.key)
        found: list[str] = []
        self._each_topic(old, owners, lambda _owner, nameless: found.extend(nameless))
        return found

    def forget_gone(self, page: ListPage, after: str, now_ms: int) -> None:
        """Forget the condemnations of payloads that are not there: `page` is the filer's list from
        `after` on. A payload condemned lately may have its deletion on the way; its turn comes."""
        there = {facts.key for facts in page.files}
        settled_ms = now_ms - SETTLED_MS
        condemned = self.manifest.condemned_between(after, page.following, settled_ms)
        if gone := [key for key in condemned if key not in there]:
            self.manifest.forget_payloads(gone)

    def sweep(
        self, keys: Iterable[str], owners: Sequence[Owner], now_ms: int, settle_ms: int
    ) -> list[str]:
        """Condemn orphans, and delete those that have been condemned long enough; returns these.

        `settle_ms` is for topics without an owner. A payload that fails holds up no other. Raises
        as `orphans`, or the first failure of a payload, at the end.
        """
        swept: list[str] = []
        undated: list[StoreError] = []
        undeleted: list[StoreError] = []

        def sweep_topic(_owner: Owner | None, condemned: list[str]) -> None:
            if condemned:
                self.manifest.sync()  # No name comes back.
            if gone := _done(self.store.delete, condemned, undeleted, FAILURES_MAX):
                swept.extend(gone)
                self.manifest.forget_payloads(gone)

        def condemn(owner: Owner | None, keys: list[str]) -> list[str]:
            wanted_ms = settle_ms if owner is None else owner.orphan_ms
            outdated = _done(self.store.outdate, keys, undated)
            return self.manifest.condemn_payloads(outdated, now_ms, min(wanted_ms, SETTLED_MS))

        self._each_topic(keys, owners, sweep_topic, condemn)
        if failures := [*undeleted, *undated]:
            raise failures[0]
        return swept

    def _each_topic(
        self,
        keys: Iterable[str],
        owners: Sequence[Owner],
        do: Callable[[Owner | None, list[str]], None],
        first: Callable[[Owner | None, list[str]], list[str]] = lambda _owner, keys: keys,
    ) -> None:
        """Do `first` with each topic's keys, and `do` with those of its answer that no record
        names. Raises the first failure after all topics."""
        by_directory = _by_directory(owners)
        failures: list[StoreError | PeerError] = []
        for directory, some in groupby(keys, _directory):
            owner = by_directory.get(directory)
            try:
                do(owner, list(self._nameless(directory, owner, first(owner, list(some)))))
            except (StoreError, PeerError) as reason:
                failures.append(reason)
        if failures:
            raise failures[0]

    def _nameless(self, directory: str, owner: Owner | None, keys: list[str]) -> Iterator[str]:
        """Those of the old payloads in a directory that may be deleted."""
        if owner is not None:
            yield from self._unnamed(owner, keys)
            return
        namespace, _, topic = directory.removeprefix(PREFIX)[:-1].rpartition("/")
        for key in keys:
            if self.manifest.has_topic(namespace, topic):
                return
            yield key

    def _unnamed(self, owner: Owner, keys: list[str]) -> list[str]:
        """Those of a topic's old payloads that no record refers to."""
        ids = self._unsealed_names(owner) if (keys := self._not_in_segments(keys)) else None
        if ids is None:
            return []
        return [key for key in self._not_in_segments(keys) if _id(key) not in ids]

    def _not_in_segments(self, keys: list[str]) -> list[str]:
        named = self.manifest.named_payloads([_id(key) for key in keys])
        return [key for key in keys if _id(key) not in named]

    def _unsealed_names(self, owner: Owner) -> set[str] | None:
        """The payloads that unsealed records of a topic refer to.

        None if some records cannot be read.
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


def _done(
    do: Callable[[str], None],
    keys: Sequence[str],
    failures: list[StoreError],
    failures_max: int | None = None,
) -> list[str]:
    """Those of these payloads of which `do` succeeded; adds its failures."""
    succeeded: list[str] = []
    for key in keys:
        if failures_max is not None and len(failures) >= failures_max:
            break
        try:
            do(key)
            succeeded.append(key)
        except StoreError as reason:
            failures.append(reason)
    return succeeded


def _by_directory(owners: Iterable[Owner]) -> dict[str, Owner]:
    return {directory_of(each.namespace, each.topic): each for each in owners}


def _directory(key: str) -> str:
    return key[: key.rindex("/") + 1]


def _id(key: str) -> str:
    return key[key.rindex("/") + 1 :]
