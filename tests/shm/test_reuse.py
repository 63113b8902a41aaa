"""Memory of columns is reused, and never while it is referenced."""

import random
import threading

import numpy as np
import pyarrow as pa

from shm.reuse import BLOCK_WORDS_MAX, BLOCK_WORDS_MIN, BLOCKS_MAX, empty_words

COUNT = BLOCK_WORDS_MIN + 5


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_unreferenced_memory_is_reused() -> None:
    first = _address(empty_words(COUNT))
    assert first in {_address(empty_words(COUNT + i)) for i in range(BLOCKS_MAX)}


def test_memory_under_a_view_is_not_used_again() -> None:
    view = empty_words(COUNT).view(np.uint8)[100:200]
    view[:] = 7
    for _ in range(3 * BLOCKS_MAX):
        empty_words(COUNT)[:] = 0
    assert (view == 7).all()


def test_memory_under_an_arrow_array_is_not_used_again() -> None:
    words = empty_words(COUNT)
    words[:] = 7
    array = pa.Array.from_buffers(pa.int64(), COUNT, [None, pa.py_buffer(words)])
    del words
    for _ in range(3 * BLOCKS_MAX):
        empty_words(COUNT)[:] = 0
    assert array.unique().to_pylist() == [7]


def test_very_small_and_very_large_arrays_are_not_kept() -> None:
    for count in (0, 1, BLOCK_WORDS_MIN - 1, BLOCK_WORDS_MAX + 1):
        array = empty_words(count)
        assert array.shape == (count,)
        assert array.base is None


def test_threads_never_share_memory() -> None:
    torn: list[int] = []

    def work(mark: int) -> None:
        chance, held = random.Random(mark), list[np.ndarray]()
        for _ in range(300):
            words = empty_words(COUNT)
            words[:] = mark
            held = [*held, words][-chance.randrange(1, 6) :]
            if any((each != mark).any() for each in held):
                torn.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torn == []
