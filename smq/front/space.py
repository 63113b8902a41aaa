"""Room for uploads: a quota per namespace, and disk space reserved for the log.

The namespace of a key is its part after payloads/, or else its first part. Payloads and other files
of a name count apart: who may write the one may not fill the other. Sealed segments do not count:
retention bounds them. Usage is not stored, so errors in it do not persist: it is counted in
the filer at start and periodically, and uploads since the last count are added. Uploads in progress
count as arrived.

The number of uploads in parts at a time is limited, because a store that is not a directory buffers
the parts in memory. A user has a share of them, as a client may take as long as it likes.
"""

from collections import Counter
from types import TracebackType
from typing import Self, TypeVar

from smq.filer.reserve import Reserve
from smq.filer.store import Store
from smq.model.errors import Full, Unavailable
from smq.model.references import PREFIX as PAYLOADS_PREFIX
from smq.model.segments import SEGMENTS_PREFIX
from smq.security.principals import Principal

T = TypeVar("T")

NO_QUOTA = -1
UPLOADS_IN_PARTS_MAX = 32  # Each holds parts of 8 MiB, or 64 MiB when it replaces a version.
SHARE = 4  # A user has at most one of these in as many.


def namespace_of(key: str) -> str:
    """The namespace whose quota an object counts against."""
    prefix = PAYLOADS_PREFIX if key.startswith(PAYLOADS_PREFIX) else ""
    return prefix + key.removeprefix(prefix).partition("/")[0]


class Space:
    """The room for uploads, in bytes. For one event loop.

    A namespace is remembered while it has bytes. Invariant: what is used, on the way or arrived is
    more than 0 for each that is remembered, and so are the uploads of each user who has some.
    """

    def __init__(self, store: Store, quota_bytes: int, reserve_bytes: int) -> None:
        self._store, self._quota_bytes = store, quota_bytes
        self._used: Counter[str] = Counter()
        self._on_the_way: Counter[str] = Counter()
        self._arrived: Counter[str] = Counter()
        place = store.local_path("any")
        self._reserve = None if place is None else Reserve(place.parent, reserve_bytes)
        self._in_parts = place is None
        self._uploads: Counter[Principal | None] = Counter()  # None: of nobody in particular.
        self.counted = quota_bytes == NO_QUOTA

    def limit(self, quota_bytes: int, reserve_bytes: int) -> None:
        """Set new limits. The first quota makes uploads wait for a count."""
        if quota_bytes == NO_QUOTA:
            self.counted = True
        elif not self.has_quota:
            self.counted = False
        self._quota_bytes = quota_bytes
        if self._reserve is not None:
            self._reserve = self._reserve._replace(byte_count=reserve_bytes)

    @property
    def has_quota(self) -> bool:
        return self._quota_bytes != NO_QUOTA

    def count(self) -> Counter[str]:
        """Each namespace's bytes, counted in the filer. Slow; changes nothing."""
        held: Counter[str] = Counter()
        for facts in self._store.list():
            if not facts.key.startswith(SEGMENTS_PREFIX):
                held[namespace_of(facts.key)] += facts.length
        return held

    def begin_count(self) -> None:
        """Begin a count. It may or may not include uploads that arrive before its end."""
        self._arrived.clear()

    def end_count(self, held: Counter[str]) -> None:
        """End a count: add what arrived meanwhile, to be safe."""
        self._used = held + self._arrived
        self.counted = True

    def upload(self, key: str, user: Principal | None = None) -> "Upload":
        """Room for one upload; the end of its block returns what did not arrive.

        Entering it raises Unavailable if there are too many uploads. `user`: None if nobody has to
        log in.
        """
        return Upload(self, namespace_of(key), user)

    def begin(self, namespace: str, user: Principal | None) -> None:
        """Begin an upload. Raises Unavailable if there are too many."""
        share = UPLOADS_IN_PARTS_MAX // SHARE
        is_own_full = user is not None and self._uploads[user] >= share
        if self._in_parts and (is_own_full or self._uploads.total() >= UPLOADS_IN_PARTS_MAX):
            raise Unavailable(namespace, "too many uploads are in progress")
        self._uploads[user] += 1

    def end(self, user: Principal | None) -> None:
        """End an upload."""
        _add(self._uploads, user, -1)

    def check(self, namespace: str, byte_count: int) -> None:
        """Raises Full if there is no room for this many more bytes."""
        taken = self._used[namespace] + self._on_the_way[namespace]
        if self.has_quota and taken + byte_count > self._quota_bytes:
            raise Full(
                namespace,
                f"the quota of this namespace is {self._quota_bytes} bytes (filer.quota.bytes), "
                "and has no room for this",  # How much others have is not for all who may write.
            )
        if self._reserve is not None:
            self._reserve.check(namespace, byte_count)

    def take(self, namespace: str, byte_count: int) -> None:
        """Count bytes in progress. Raises Full."""
        self.check(namespace, byte_count)
        _add(self._on_the_way, namespace, byte_count)

    def settle(self, namespace: str, taken: int, arrived: int) -> None:
        """Settle an upload: the filer has `arrived` more bytes (fewer, if negative)."""
        _add(self._on_the_way, namespace, -taken)
        assert self._on_the_way[namespace] >= 0
        if self.has_quota:  # Else nothing is counted, so nothing would be forgotten either.
            _add(self._used, namespace, max(arrived, -self._used[namespace]))
            _add(self._arrived, namespace, max(0, arrived))

    def removed(self, key: str, byte_count: int) -> None:
        """Count a deleted object."""
        self.settle(namespace_of(key), 0, -byte_count)

    @property
    def names(self) -> int:
        """How many namespaces it remembers."""
        return len(self._used.keys() | self._on_the_way.keys() | self._arrived.keys())

    def invariants(self) -> None:
        """Assert the class's invariant; looks at every namespace."""
        for counts in (self._used, self._on_the_way, self._arrived, self._uploads):
            assert all(count > 0 for count in counts.values())


def _add(counts: Counter[T], name: T, count: int) -> None:
    """Add to the count of a namespace or user, and forget it when it is 0: clients choose names."""
    counts[name] += count
    if not counts[name]:
        del counts[name]


class Upload:
    """The share of one upload."""

    def __init__(self, space: Space, namespace: str, user: Principal | None) -> None:
        self._space, self._namespace, self._user = space, namespace, user
        self._taken = self._arrived = 0

    def check(self, byte_count: int) -> None:
        """Raises Full if this many bytes have no room. Called before the first byte is read."""
        self._space.check(self._namespace, byte_count)

    def take(self, byte_count: int) -> None:
        """Count more bytes of this upload. Raises Full."""
        self._space.take(self._namespace, byte_count)
        self._taken += byte_count

    def arrived(self, replaced_bytes: int) -> None:
        """Record that the upload is in the filer and replaced this many bytes."""
        self._arrived = self._taken - replaced_bytes

    def __enter__(self) -> Self:
        self._space.begin(self._namespace, self._user)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._space.settle(self._namespace, self._taken, self._arrived)
        self._space.end(self._user)
