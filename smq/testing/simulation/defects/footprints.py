"""Pages that are dropped although their write-back has failed."""

from contextlib import suppress

from smq.log.files.footprint import Footprint
from smq.log.files.segment import WalSegment
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant
from smq.testing.simulation.writing_back import WRITE_BACK_FAILS


def _drop_regardless(self: Footprint, segment: WalSegment) -> None:
    """Drop what the page cache alone has."""
    if segment.cache_fd < 0:
        self.open(segment, segment.path)
    size = segment.end - segment.start
    with suppress(OSError):
        self._disk.write_back(segment.cache_fd, size)
    self._disk.drop(segment.cache_fd, size)
    self.close(segment)


MUTANTS = (
    Mutant(
        "drops-regardless",
        "pages are dropped whose write-back has failed",
        TOPICS | {WRITE_BACK_FAILS},
        (Change(Footprint, "_drop", _drop_regardless),),
        seed=4,
    ),
)
