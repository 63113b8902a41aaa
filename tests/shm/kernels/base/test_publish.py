"""A version word; tests/shm/test_catalog.py has two processes at it."""

import numpy as np

from shm.kernels.base.publish import read_version, write_version


def test_the_version_that_was_written_is_read_and_no_other_word_moves() -> None:
    words = np.arange(8)
    write_version(words, -(2**62))
    assert read_version(words) == -(2**62)
    assert words[1:].tolist() == list(range(1, 8))
