"""Words of a log's header as another process reads them."""

import numpy as np
import pytest

from shm.kernels.base.words import WORD_CLAIMED, WORD_TAIL
from shm.kernels.reader.glance import acquire_word, word_after_reading


@pytest.mark.parametrize("read", [acquire_word, word_after_reading])
def test_the_word_is_read_from_memory_that_may_only_be_read(read: object) -> None:
    assert callable(read)
    words = np.zeros(512, np.int64)
    words[WORD_TAIL], words[WORD_CLAIMED] = 5, -(2**63)
    memory = np.frombuffer(words.tobytes(), np.uint8)
    assert read(memory, WORD_TAIL) == 5
    assert read(memory, WORD_CLAIMED) == -(2**63)
