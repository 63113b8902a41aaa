"""One page that cannot be read costs all that is read with it."""

import numpy as np

from smq.log import recovery
from smq.log.files import past_cache, wal
from smq.log.files.bad_pages import pages_of
from smq.log.files.disk import Disk
from smq.log.files.salvage import Salvaged
from smq.testing.simulation.bad_sectors import SECTORS_FAIL
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant


def _give_up(disk: Disk, fd: int, length: int, at: int) -> Salvaged:
    """Zeros for all bytes if any cannot be read."""
    try:
        return Salvaged(disk.read(fd, length, at), 0, None)
    except OSError as error:
        return Salvaged(np.zeros(length, np.uint8), length, error, pages_of(at, length))


MUTANTS = (
    Mutant(
        "a-bad-page-costs-its-neighbours",
        "what is read together with a page that cannot be read is lost",
        TOPICS | {SECTORS_FAIL},
        tuple(Change(module, "salvage", _give_up) for module in (recovery, past_cache, wal)),
        seed=5,
    ),
)
