"""Makes records visible: moves high watermarks when a level of durability is reached."""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.entries import LINK_SLOT
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import (
    entry_base_offset,
    entry_partition,
    entry_position,
    entry_record_count,
    get_partition,
    get_word,
    release_partition,
    set_partition,
)


@kernel
def _mark(memory, slot, touched, count):
    """Note a slot in `touched`, once; returns the new count."""
    if get_partition(memory, slot, words.P_DIRTY) != 0:
        return count
    set_partition(memory, slot, words.P_DIRTY, 1)
    touched[count] = slot
    return count + 1


@kernel
def _is_of_level(memory, i, slot, level):
    """Whether the partition of index slot i still has the row `slot`, and this level."""
    if entry_partition(memory, i) != get_partition(memory, slot, words.P_NUMBER):
        return False
    return (get_partition(memory, slot, words.P_FLAGS) >> words.DURABILITY_SHIFT) & 3 == level


@kernel
def stable_end(memory, slot, end):
    """The last stable offset when everything below `end` is visible: open transactions bound it.

    A transaction is decided once its marker is appended, before the marker is visible: the
    coordinator has stored the decision by then, so a lost marker is written again with the same
    decision.
    """
    open_from = get_partition(memory, slot, words.P_OPEN_FROM)
    return end if open_from == 0 else min(end, open_from - 1)


@kernel
def publish(memory, links, cursors, level, upto, touched):
    """Raise the HWM of every partition of this level to its end below position `upto`.

    cursors   int64 [3]: for each level the next index entry to process; updated
    touched   int64: filled with the slots of the partitions whose HWM moved, each once

    A HWM never moves back: a partition whose level was changed may be ahead of the cursor.
    Returns how many were touched. Stops early when `touched` is full: call again. A partition's
    P_DIRTY is its mark within one call.
    """
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    tail = get_word(memory, words.WORD_INDEX_TAIL)
    entry, count = cursors[level], np.int64(0)
    while entry < tail and count < touched.size:
        i = entry % capacity
        if entry_position(memory, i) >= upto:
            break
        slot = links[LINK_SLOT, i]
        if _is_of_level(memory, i, slot, level):
            end = entry_base_offset(memory, i) + entry_record_count(memory, i)
            if end > get_partition(memory, slot, words.P_HIGH_WATERMARK):
                release_partition(memory, slot, words.P_HIGH_WATERMARK, end)
                release_partition(memory, slot, words.P_LAST_STABLE, stable_end(memory, slot, end))
                count = _mark(memory, slot, touched, count)
        entry += 1
    cursors[level] = entry
    for i in range(count):
        set_partition(memory, touched[i], words.P_DIRTY, 0)
    return count
