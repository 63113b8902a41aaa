"""Searching a log's index: one entry for each frame, all partitions interleaved.

`shm.kernels.base.entries` lists the columns. All processes read the shared ones; `links` is private
to the shard.

JUMP links make a walk from the newest entry back to any offset take O(log n) steps, at O(1) work
for an append: a skew-binary random-access list (Myers 1983) in a column. NEWEST is the largest
timestamp among the entries that a jump skips, so the first entry that reaches a timestamp is also
found in O(log n) steps.

A walk ends at an overwritten entry; the index filed beside the full WAL segment has that one.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.entries import (
    LINK_DEPTH,
    LINK_JUMP,
    LINK_NEWEST,
    LINK_NEXT,
    LINK_PREVIOUS,
    LINK_SLOT,
)
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import (
    entry_base_offset,
    entry_max_timestamp,
    get_partition,
    get_word,
    release_word,
    set_partition,
    write_entry,
)


@kernel
def window_start(memory):
    """The oldest entry that has not been overwritten."""
    return max(
        0, get_word(memory, words.WORD_INDEX_TAIL) - get_word(memory, words.WORD_INDEX_CAPACITY)
    )


@kernel
def _jump_from(links, previous, oldest, capacity):
    """Where the successor of `previous` jumps to: twice as far if both jumps behind are equal."""
    p = previous % capacity
    jump = links[LINK_JUMP, p]
    if jump < oldest:
        return previous
    j = jump % capacity
    beyond = links[LINK_JUMP, j]
    if beyond < oldest:
        return previous
    near = links[LINK_DEPTH, p] - links[LINK_DEPTH, j]
    if near == links[LINK_DEPTH, j] - links[LINK_DEPTH, beyond % capacity]:
        return beyond
    return previous


@kernel
def append_entry(memory, links, slot, position, base_offset, max_timestamp, shape):
    """Add the entry of a frame; `shape` is (offsets spanned, bytes of the batch, attributes).

    Published: a reader that acquires WORD_INDEX_TAIL sees the whole entry.
    """
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    entry = get_word(memory, words.WORD_INDEX_TAIL)
    i = entry % capacity
    number = get_partition(memory, slot, words.P_NUMBER)
    write_entry(memory, i, position, base_offset, max_timestamp, number, shape)
    # The slot being overwritten must already lie below the window while links are read.
    oldest = max(0, entry + 1 - capacity)
    previous = get_partition(memory, slot, words.P_LAST_ENTRY)
    links[LINK_PREVIOUS, i] = -1
    links[LINK_NEXT, i] = -1
    links[LINK_JUMP, i] = -1
    links[LINK_DEPTH, i] = 0
    links[LINK_SLOT, i] = slot
    links[LINK_NEWEST, i] = max_timestamp
    if previous >= oldest:
        links[LINK_PREVIOUS, i] = previous
        links[LINK_NEXT, previous % capacity] = entry
        links[LINK_DEPTH, i] = links[LINK_DEPTH, previous % capacity] + 1
        links[LINK_JUMP, i] = _jump_from(links, previous, oldest, capacity)
        if links[LINK_JUMP, i] != previous:  # It skips the two jumps behind it.
            p = previous % capacity
            j = links[LINK_JUMP, p] % capacity
            newest = max(links[LINK_NEWEST, p], links[LINK_NEWEST, j])
            links[LINK_NEWEST, i] = max(max_timestamp, newest)
    set_partition(memory, slot, words.P_LAST_ENTRY, entry)
    release_word(memory, words.WORD_INDEX_TAIL, entry + 1)


@kernel
def find_entry(memory, links, slot, offset):
    """The newest entry of a partition with base_offset <= offset; -1: it is not in the window."""
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    oldest = window_start(memory)
    entry = get_partition(memory, slot, words.P_LAST_ENTRY)
    while entry >= oldest and entry_base_offset(memory, entry % capacity) > offset:
        jump = links[LINK_JUMP, entry % capacity]
        if jump >= oldest and entry_base_offset(memory, jump % capacity) > offset:
            entry = jump
        else:
            entry = links[LINK_PREVIOUS, entry % capacity]
    return entry if entry >= oldest else np.int64(-1)


@kernel
def first_entry(memory, links, slot):
    """The oldest entry of a partition in the window; -1: none."""
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    oldest = window_start(memory)
    entry = get_partition(memory, slot, words.P_LAST_ENTRY)
    found = np.int64(-1)
    while entry >= oldest:
        found = entry
        jump = links[LINK_JUMP, entry % capacity]
        entry = jump if jump >= oldest else links[LINK_PREVIOUS, entry % capacity]
    return found


@kernel
def find_timestamp(memory, links, slot, first, limit, timestamp):
    """The first of a partition's entries from `first` on, which must be one of them in the window,
    whose largest timestamp reaches `timestamp`; -1: there is none below offset `limit`.

    Walks back from the newest entry to the oldest stretch between two jumps that reaches it, then
    searches within that stretch.
    """
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    entry, found = find_entry(memory, links, slot, limit - 1), np.int64(-1)
    first = max(first, 0)  # Otherwise a partition without entries would be searched for ever.
    while entry >= first:
        i = entry % capacity
        jump = links[LINK_JUMP, i]
        if jump >= first:
            if links[LINK_NEWEST, i] >= timestamp:
                found = entry
            entry = jump
        else:
            if entry_max_timestamp(memory, i) >= timestamp:
                found = entry
            entry = links[LINK_PREVIOUS, i]
    return _earliest_in(links, found, first, timestamp, capacity)


@kernel
def _earliest_in(links, found, first, timestamp, capacity):
    """The first entry that reaches a time in the stretch, one that does, which ends with `found`.

    Unless it is one entry, it is that entry and the two stretches behind it.
    """
    while found >= 0:
        i = found % capacity
        jump, previous = links[LINK_JUMP, i], links[LINK_PREVIOUS, i]
        if jump < first or jump == previous:
            break
        p = previous % capacity
        middle = links[LINK_JUMP, p]
        if links[LINK_NEWEST, middle % capacity] >= timestamp:
            found = middle
        elif links[LINK_NEWEST, p] >= timestamp:
            found = previous
        else:
            break
    return found
