"""Undecided segments: batches under an open transaction, sealed as sent when space is short.

    sealed end                   undecided end          high watermark
        |------ undecided segments ------|---- WAL ----------|
        ^ <= the last stable offset, which may lie anywhere behind it

The write-ahead log goes on behind them: they hold what it has no more, markers and aborted records
too, and a fetch is answered from them as from the log, with the shard's list of aborted
transactions. They have a table of their own in the manifest, so no table, query, merge or
compaction takes them for sealed records. Sealing goes on at the sealed end once the last stable
offset moves, and reads them in place of the log:

    seal as sent    file synced → undecided line → the shard's checkpoint says so → the WAL is freed
    decided         file synced → its line in, the undecided lines below its end out, in one commit
                    → the shard's checkpoint says so → the undecided file stays for filer.sweep.ms

The shard's checkpoint keeps the open and the aborted transactions from the sealed end on. A kill
between any two steps is safe, as for other seals (smq.sealer.seal).
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from smq.filer.store import Store
from smq.model.errors import StoreError
from smq.model.segments import Segment
from smq.sealer.cold import open_segment
from smq.sealer.ports import ManifestPort, ShardPort
from smq.sealer.raw import RawSegment
from smq.wire.markers import without

BATCHES_MAX = 1000  # At a time: the shard answers in its loop for as many producers.


class _Aborted(NamedTuple):
    """An aborted transaction, as `without` takes it."""

    producer_id: int
    first_offset: int
    last_offset: int


class Undecided:
    """A partition's batches from its undecided segments, as its shard would give them."""

    def __init__(
        self, store: Store, shard: ShardPort, manifest: ManifestPort, staging: Path | None
    ) -> None:
        self._store, self._shard, self._manifest = store, shard, manifest
        self._staging = staging
        self._opened: tuple[Segment, RawSegment] | None = None

    def batches(self, number: int, offset: int, end: int, bytes_max: int) -> bytes | None:
        """Whole batches from the one with `offset`, below `end`, without aborted records.

        None: no undecided segment has the offset, or they are decided and sealed by now. `end` is
        decided. Raises StoreError.
        """
        found = self._manifest.undecided(number, offset, 1)
        if not found or found[0].base_offset > offset:
            return None
        segment = self._open(found[0])
        index = segment.index
        index = index[(index["last_offset"] >= offset) & (index["last_offset"] < end)]
        if not len(index):
            raise StoreError(found[0].path, f"it has no whole batch from {offset} to {end}")
        sizes = (index["end"] - index["at"]).cumsum()
        count = max(1, min(BATCHES_MAX, int(np.searchsorted(sizes, bytes_max, "right"))))
        data = b"".join(bytes(segment.body[row["at"] : row["end"]]) for row in index[:count])

        def aborted(start: int, end: int, producers: list[int]) -> list[_Aborted]:
            return [_Aborted(*each) for each in self._shard.aborted(number, start, end, producers)]

        decided = without(data, aborted)
        # Once they are sealed, the shard may have forgotten them.
        return None if self._manifest.sealed_end(number) > offset else decided

    def _open(self, line: Segment) -> RawSegment:
        if self._opened is None or self._opened[0] != line:
            opened = open_segment(self._store, line, self._staging)
            assert isinstance(opened, RawSegment), "batches as sent"
            self._opened = line, opened
        return self._opened[1]
