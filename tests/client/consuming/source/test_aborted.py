"""Aborted batches: by producer, from a first offset to the next marker."""

import numpy as np

from shm.kernels.base.words import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from shm.kernels.reader.lend import F_FIELDS
from shm.kernels.record.records import B_ATTRIBUTES, B_LAST_OFFSET, B_PRODUCER_ID
from smq.client.consuming.source.aborted import in_aborted
from smq.wire.generated.fetch import AbortedTransaction

PLAIN, OF_TRANSACTION = 0, ATTRIBUTE_TRANSACTIONAL
MARKER = ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL


def found(
    batches: list[tuple[int, int, int]], *aborted: tuple[int, int], is_sorted: bool = True
) -> list[int]:
    """The last offsets of the batches (last offset, producer, attributes) that were aborted."""
    facts = np.zeros((F_FIELDS, len(batches)), np.int64)
    facts[[B_LAST_OFFSET, B_PRODUCER_ID, B_ATTRIBUTES]] = np.array(batches).T
    rows = [AbortedTransaction(producer_id=each, first_offset=first) for each, first in aborted]
    wanted = in_aborted(facts, rows if is_sorted else reversed(rows))
    last_offsets: list[int] = facts[B_LAST_OFFSET, wanted].tolist()
    return last_offsets


def test_a_transaction_ends_with_its_own_marker_and_no_other() -> None:
    batches = [
        (1, 7, OF_TRANSACTION),
        (2, 8, OF_TRANSACTION),
        (3, 8, MARKER),
        (4, 7, OF_TRANSACTION),
        (5, 7, MARKER),
        (6, 7, OF_TRANSACTION),
        (7, 7, MARKER),
    ]
    assert found(batches, (7, 1)) == [1, 4]
    assert found(batches, (7, 6)) == [6]
    assert found(batches, (7, 1), (8, 2), (7, 6)) == [1, 2, 4, 6]
    assert found(batches, (7, 1), (7, 6), is_sorted=False) == [1, 4, 6]
    assert found(batches) == []


def test_a_transaction_that_began_before_the_answer_is_aborted_from_its_first_batch_on() -> None:
    assert found([(9, 7, OF_TRANSACTION), (10, 7, MARKER)], (7, 3)) == [9]


def test_a_producers_batches_outside_of_transactions_are_not_skipped() -> None:
    assert found([(1, 7, PLAIN), (2, 7, OF_TRANSACTION), (3, 7, MARKER)], (7, 2)) == [2]
