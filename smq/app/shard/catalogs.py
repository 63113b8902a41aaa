"""Takes the catalogs that the coordinator publishes, and with the first one where partitions end.

A log's files may have been deleted, or be older than the store. Then records are sealed that it
knows nothing of: without looking, their offsets would be given to new records, which nobody could
read. So the first catalog comes with a look into the manifest, and clients are let in once a
checkpoint has what it told: a start without one would take the gap before the new records for
nothing.

    first catalog  →  ends raised  →  the manifest's lines durable  →  checkpoints  →  clients
"""

from collections.abc import Callable, Iterable
from functools import partial

from shm.catalog import CatalogBlock
from smq.log.log import Log
from smq.model.catalog import Catalog
from smq.model.segments import KnownEnds
from smq.shard.shard import Shard


class Catalogs:
    """The catalogs of one shard.

    `known_ends` reads the manifest; `sync` has its lines durable. Both may block, and raise
    SystemExit. `sync` is called only if something is sealed that a log does not know.
    """

    def __init__(
        self,
        block: CatalogBlock,
        shard: Shard,
        known_ends: Callable[[], Iterable[KnownEnds]],
        sync: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._block, self._shard = block, shard
        self._known_ends, self._sync, self._now_ms = known_ends, sync, now_ms
        self._waits_for: set[int] = set()

    @property
    def are_known(self) -> bool:
        """Whether clients may be let in."""
        return self._shard.catalog_version > 0 and not self._waits_for

    def take(self) -> bool:
        """Apply a newly published catalog; returns whether there was one."""
        if not self._block.has_moved(self._shard.catalog_version):
            return False
        is_first = not self._shard.catalog_version
        version, published = self._block.read()
        self._shard.take_catalog(Catalog.decode(published), version)
        if is_first:
            self._raise_ends()
        return True

    def _raise_ends(self) -> None:
        raised = self._shard.raise_ends(self._known_ends(), self._now_ms())
        if raised:
            self._sync()
        for log in raised:
            log.notices.append(
                f"{log.directory}: partitions ended here before what is sealed of them: what was "
                "not sealed behind that is lost, and they go on behind what is"
            )
            self._waits_for.add(log.number)
            log.checkpoint(partial(self._checkpointed, log))

    def _checkpointed(self, log: Log) -> None:
        self._waits_for.discard(log.number)
