"""What a shard sees of the filer: whether a payload is there.

On a filer of this host that is a stat, a few microseconds. Another store is asked by the sealer,
for the shard's loop never waits: until the answer is known producers are told to send again, which
all of them do by themselves, and what is known is kept for a moment.
"""

import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from smq.app.peers import Peers
from smq.filer.location import Location
from smq.model.config import Config
from smq.shard.references import Later, Payloads, Seen

NANOSECONDS_PER_MS = 1_000_000
KNOWN_MAX = 10_000
KNOWN_MS = 10_000  # A payload that a new record may name is not swept within this time.


class LocalPayloads:
    """Files below the filer's root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def look(self, key: str) -> Seen | None:
        """See `Payloads`."""
        try:
            found = os.stat(f"{self._root}/{key}")  # noqa: PTH116  (A Path costs as much again.)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as reason:
            raise Later from reason
        if not stat.S_ISREG(found.st_mode):
            return None
        return Seen(found.st_size, found.st_mtime_ns // NANOSECONDS_PER_MS)

    def directory(self, prefix: str) -> bytes:
        """See `Payloads`."""
        return os.fsencode(f"{self._root}/{prefix}")


class AskedPayloads:
    """Objects of a store that the sealer asks."""

    def __init__(self, peers: Peers, now_ms: Callable[[], int]) -> None:
        self._peers, self._now_ms = peers, now_ms
        self._known: OrderedDict[str, tuple[int, Seen | None]] = OrderedDict()
        self._asked: set[str] = set()

    def look(self, key: str) -> Seen | None:
        """See `Payloads`."""
        known = self._known.get(key)
        if known is not None and self._now_ms() - known[0] < KNOWN_MS:
            if known[1] is None:
                del self._known[key]  # It may be uploaded any time: said once, then asked again.
            return known[1]
        if key not in self._asked:
            self._asked.add(key)
            self._peers.ask_sealer(
                {"do": "payload", "key": key}, lambda said: self._told(key, said)
            )
        raise Later

    def directory(self, _prefix: str) -> None:
        """See `Payloads`."""

    def _told(self, key: str, said: dict[str, Any] | None) -> None:
        self._asked.discard(key)
        if said is None:
            return
        self._known[key] = self._now_ms(), Seen(*said["ok"]) if said["ok"] else None
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


def payloads_of(config: Config, peers: Peers, now_ms: Callable[[], int]) -> Payloads:
    """The payloads of the configured filer."""
    location = Location.of(config)
    return AskedPayloads(peers, now_ms) if location.is_s3 else LocalPayloads(location.root)
