"""Checks of batches that hold the loop."""

import numpy as np

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.shard import validation
from smq.shard.recompression import codec_of
from smq.shard.validation import INFLATED_BYTES_MAX, Validation
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant
from smq.wire.codec import Buffer


def _inflated_in_the_loop(_self: Validation, batch: np.ndarray) -> Buffer:
    """A bound for each batch, and none for the turn."""
    records = batch.data[BATCH_HEADER_BYTES:]
    inflated: Buffer = vars(validation)["decompress"](codec_of(batch), records, INFLATED_BYTES_MAX)
    return inflated


MUTANTS = (
    Mutant(
        "the-loop-inflates-all",
        "the batches of a request are inflated in one turn, each as far as a batch may",
        TOPICS | {"inflate"},
        (Change(Validation, "_inflated_here", _inflated_in_the_loop),),
        seed=175,
    ),
)
