"""Finds fetched batches that belong to aborted transactions (KIP-98).

The broker names the aborted transactions that overlap its answer, by producer and first offset.
Such a transaction ends with its producer's next marker: none of its batches may be returned.
"""

from collections.abc import Iterable

import numpy as np

from shm.kernels.base.words import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from shm.kernels.record.records import B_ATTRIBUTES, B_LAST_OFFSET, B_PRODUCER_ID
from smq.wire.generated.fetch import AbortedTransaction


def in_aborted(facts: np.ndarray, aborted: Iterable[AbortedTransaction]) -> np.ndarray:
    """For each batch, in offset order, whether it belongs to an aborted transaction."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    found = np.zeros(facts.shape[1], bool)
    ending: set[int] = set()  # The producers whose transaction, at this point, will be aborted.
    transactional = np.flatnonzero(facts[B_ATTRIBUTES] & ATTRIBUTE_TRANSACTIONAL)
    rows = facts[[B_LAST_OFFSET, B_PRODUCER_ID, B_ATTRIBUTES]][:, transactional].T.tolist()
    for batch, (last_offset, producer_id, attributes) in zip(transactional, rows, strict=True):
        while waiting and waiting[-1].first_offset <= last_offset:
            ending.add(waiting.pop().producer_id)
        if attributes & ATTRIBUTE_CONTROL:
            ending.discard(producer_id)
        else:
            found[batch] = producer_id in ending
    return found
