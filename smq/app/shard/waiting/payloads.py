"""A shard's view of the filer: whether a payload is there.

On a filer of this host that is a stat, a few microseconds. The shard's loop never waits, so the
sealer asks any other store: until the answer is known, producers get a retriable error, and answers
are cached for a while. One question is in flight at a time. Later ones are combined in the next, so
that a batch's payloads are requested together and a request for very many does not delay others.
"""

import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import islice

from smq.app.process.peers import Peers
from smq.filer.location import Location
from smq.model.config import Config
from smq.model.references import SETTLED_MS
from smq.shard.references import CHECK_MS_MAX, LATER_MAX, NotYetKnown, PayloadFacts, PayloadLookup
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import FindPayloads

NANOSECONDS_PER_MS = 1_000_000
KEYS_MAX = 256  # Per question: S3 answers this many in about a second; the sealer waits for ten.
WANTED_MAX = 1000  # Others are asked for again with the next attempt.
KNOWN_MAX = 50_000  # Some 25 MB.
# Long enough that all answers for the largest batch are known at the same time, even from a slow
# store. They count from the question on: a payload may be condemned meanwhile.
KNOWN_MS = 60_000

assert KNOWN_MS + CHECK_MS_MAX <= SETTLED_MS
assert 4 * LATER_MAX < KNOWN_MAX  # Several such batches at once do not evict each other.


class LocalPayloads:
    """Files below the filer's root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def look(self, key: str) -> PayloadFacts | None:
        """See `PayloadLookup`."""
        try:
            found = os.stat(f"{self._root}/{key}")  # noqa: PTH116  (A Path costs as much again.)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as reason:
            raise NotYetKnown from reason
        if not stat.S_ISREG(found.st_mode):
            return None
        return PayloadFacts(found.st_size, found.st_mtime_ns // NANOSECONDS_PER_MS)

    def directory(self, prefix: str) -> bytes:
        """See `PayloadLookup`."""
        return os.fsencode(f"{self._root}/{prefix}")


class AskedPayloads:
    """Objects of a store that only the sealer asks."""

    def __init__(self, peers: Peers, now_ms: Callable[[], int]) -> None:
        self._peers, self._now_ms = peers, now_ms
        self._known: OrderedDict[str, tuple[int, PayloadFacts | None]] = OrderedDict()
        self._wanted: dict[str, None] = {}  # In order. The first ones are in flight, if any.
        self._is_asking = False

    def look(self, key: str) -> PayloadFacts | None:
        """See `PayloadLookup`."""
        known = self._known.get(key)
        if known is not None and self._now_ms() - known[0] < KNOWN_MS:
            if known[1] is None:
                del self._known[key]  # It may be uploaded at any time: answer once, then ask again.
            return known[1]
        if len(self._wanted) < WANTED_MAX:
            self._wanted[key] = None
        if not self._is_asking:
            self._ask()
        raise NotYetKnown

    def directory(self, _prefix: str) -> None:
        """See `PayloadLookup`."""

    def _ask(self) -> None:
        self._is_asking, asked_ms = True, self._now_ms()
        keys = list(islice(self._wanted, KEYS_MAX))
        self._peers.ask_sealer(FindPayloads(keys), partial(self._told, keys, asked_ms))

    def _told(
        self, keys: list[str], asked_ms: int, said: dict[str, tuple[int, int] | None] | Failed
    ) -> None:
        self._is_asking = False
        if isinstance(
            said, Failed
        ):  # The rest would fail too: clients that still want them ask again.
            self._wanted.clear()
            return
        for key in keys:
            del self._wanted[key]
        for key, seen in said.items():
            self._known[key] = asked_ms, PayloadFacts(*seen) if seen else None
            self._known.move_to_end(key)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        if self._wanted:
            self._ask()


def payloads_of(config: Config, peers: Peers, now_ms: Callable[[], int]) -> PayloadLookup:
    """The payloads of the configured filer."""
    location = Location.of(config)
    return AskedPayloads(peers, now_ms) if location.is_s3 else LocalPayloads(location.root)
