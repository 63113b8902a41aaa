"""A checkpoint that knows frames of a later generation."""

# ruff: noqa: SLF001  (The defects lie inside.)

import numpy as np

from shm.kernels.base.words import WORD_TAIL
from smq.log.files.checkpoint import Checkpoint
from smq.log.files.segment import WalSegment
from smq.log.recovery import _Recovery
from smq.testing.simulation.defects.mutant import CRASHES, Change, Mutant

_set_ends = _Recovery._set_ends


def _enter_all(self: _Recovery, data: np.ndarray, count: int, first_position: int) -> None:
    """No frame ends what the checkpoint knows, whoever wrote it."""
    self._enter(data, 0, count, first_position)


def _end_nothing(_self: _Recovery, _position: int) -> None:
    """Nor does the recovered tail."""


def _knows_by_position(self: _Recovery, segments: list[WalSegment], i: int) -> bool:
    """Segments are known by their position only."""
    return bool(segments[i].end <= self._known_to)


def _clip_last(self: _Recovery, checkpoint: Checkpoint | None, *, is_newest: bool) -> None:
    """Clip producers after entering all frames."""
    log = self._log
    reaches = checkpoint is not None and log.words[WORD_TAIL] >= checkpoint.position
    _set_ends(self, checkpoint if reaches else None, is_newest=is_newest)
    log.producers.clip(*log.partitions.copy().ends())


MUTANTS = (
    Mutant(
        "stale-checkpoint",
        "a checkpoint knows frames that a later life wrote below its position",
        CRASHES,
        (
            Change(_Recovery, "_enter_lives", _enter_all),
            Change(_Recovery, "_end_known", _end_nothing),
            Change(_Recovery, "_knows", _knows_by_position),
            Change(_Recovery, "_set_ends", _clip_last),
        ),
        seed=114,
    ),
)
