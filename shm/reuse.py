"""Reuses memory for columns as soon as it is no longer referenced.

The first touch of a page costs many times as much as filling it, and recently used memory is still
in the caches. An allocator returns large blocks to the kernel and takes new ones, call after call;
here some blocks of each size stay.

A block is free when only this module refers to it: arrays made from it, and Arrow buffers made from
those, all hold references.
"""

from sys import getrefcount

import numpy as np

BLOCKS_MAX = 4  # Of each size: a reader has two columns of a kind, and two of the batch before.
BLOCK_WORDS_MIN, BLOCK_WORDS_MAX = 1 << 12, 1 << 19  # 32 KiB to 4 MiB, doubling.

_blocks: dict[int, list[np.ndarray]] = {}


def empty_words(count: int) -> np.ndarray:
    """An uninitialized int64 array of `count` items."""
    if not BLOCK_WORDS_MIN <= count <= BLOCK_WORDS_MAX:
        return np.empty(count, np.int64)
    size = 1 << (count - 1).bit_length()
    kept = _blocks.setdefault(size, [])
    for _ in range(len(kept)):
        try:
            block, references = _look_at_oldest(kept)
        except IndexError:  # Other threads are checking them.
            break
        if references == _REFERENCES_IF_FREE:
            return block[:count]
    block = np.empty(size, np.int64)
    kept.append(block)
    del kept[:-BLOCKS_MAX]
    return block[:count]


def _look_at_oldest(kept: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """The oldest block, which becomes the newest, and how many refer to it.

    While it is not in the list, no other thread finds it; later, others see our reference.
    """
    block = kept.pop(0)
    references = getrefcount(block)
    kept.append(block)
    return block, references


_REFERENCES_IF_FREE = _look_at_oldest([np.empty(1, np.int64)])[1]  # Interpreters count differently.
