"""Cache files whose names come again."""

import os
from collections.abc import Callable
from pathlib import Path

from smq.sealer.cold import Cache
from smq.shard.loans import FileRange
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant

_begin = Cache.__init__


def _begin_at_zero(
    self: Cache,
    directory: Path,
    bytes_max: int,
    now_ms: Callable[[], int],
    _life: str,
    spare: Path | None = None,
) -> None:
    """Each worker's first file has the same name."""
    _begin(self, directory, bytes_max, now_ms, "", spare)


def _open_by_name(self: FileRange) -> int:
    """Whatever has the name now."""
    if self._fd < 0:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
    return self._fd


MUTANTS = (
    Mutant(
        "names-come-again",
        "a waiting answer is read from the file of a later worker: another topic's records",
        TOPICS | {"fetch", "pause"},
        (Change(Cache, "__init__", _begin_at_zero), Change(FileRange, "_open", _open_by_name)),
        seed=57,
    ),
)
