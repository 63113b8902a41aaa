"""One page that cannot be read costs all that is read with it, or is given up too soon."""

from collections.abc import Collection
from functools import partial

import numpy as np

from smq.log.files import past_cache, wal
from smq.log.files.bad_pages import BadPages, PagePatience, pages_of
from smq.log.files.disk import Disk
from smq.log.files.salvage import ReadBytes, Salvaged, salvage
from smq.log.files.segment import WalSegment
from smq.log.files.start_reads import StartReads
from smq.testing.simulation.bad_sectors import SECTORS_FAIL, SECTORS_HEAL, STARTS_ON_BAD
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant

_note = BadPages.note


def _give_up(read: ReadBytes, length: int, at: int, _left_out: object = ()) -> Salvaged:
    """Zeros for all bytes if any cannot be read."""
    try:
        return Salvaged(read(length, at), 0, None)
    except OSError as error:
        return Salvaged(np.zeros(length, np.uint8), length, error, pages_of(at, length))


def _give_up_all(disk: Disk, fd: int, length: int, at: int) -> Salvaged:
    return _give_up(partial(disk.read, fd), length, at)


def _note_all(
    self: BadPages, at: int, length: int, bad: Collection[int], *others: Collection[int]
) -> None:
    """All that was read together fails."""
    _note(self, at, length, pages_of(at, length) if len(bad) else (), *others)


def _are_over_at_once(self: BadPages, pages: range, patience: PagePatience, now_ms: int) -> bool:
    """Whatever failed once."""
    del self, pages, patience, now_ms
    return True


def _take_for_zeros(self: StartReads, segment: WalSegment, length: int) -> np.ndarray:
    """As starts did."""
    return salvage(self._disk, segment.fd, length, 0).data


MUTANTS = (
    Mutant(
        "a-bad-page-costs-its-neighbours",
        "what is read together with a page that cannot be read is lost",
        TOPICS | {SECTORS_FAIL},
        (
            Change(wal, "salvage", _give_up_all),
            *(Change(module, "salvage_some", _give_up) for module in (past_cache, wal)),
            Change(BadPages, "note", _note_all),
        ),
        seed=5,
    ),
    Mutant(
        "a-bad-page-is-given-up-at-once",
        "what cannot be read for a moment is lost",
        TOPICS | {SECTORS_HEAL},
        (Change(BadPages, "are_over", _are_over_at_once),),
        seed=9,
    ),
    Mutant(
        "a-start-takes-for-damage-what-it-cannot-read",
        "what cannot be read at the moment of a start is lost",
        TOPICS | {STARTS_ON_BAD},
        (Change(StartReads, "_read", _take_for_zeros),),
        seed=1,
    ),
)
