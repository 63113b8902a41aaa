"""Where a worker of the sealer finds everything."""

from pathlib import Path
from typing import NamedTuple

from smq.app.sealer.pass_memory import SharedPassMemory
from smq.app.sealer.pause import NEVER, Pause
from smq.filer.location import Location
from smq.filer.store import Store
from smq.sealer.lake.catalog import CatalogSettings


class Surroundings(NamedTuple):
    """The locations of everything a worker uses.

    memory        of a compaction, which goes on in the next worker
    pause         while it lasts, a worker that only seals waits
    drops_pages   what it writes does not stay in the page cache
    """

    data_dir: Path
    filer: Location
    runtime_dir: Path
    cache_dir: Path
    catalog: CatalogSettings = CatalogSettings("")
    memory: SharedPassMemory | None = None
    pause: Pause = NEVER
    drops_pages: bool = False

    def open_filer(self) -> Store:
        """The store of sealed files. Raises StoreError with a sentence, but not because it is
        down."""
        return self.filer.open(drops_pages=self.drops_pages)
