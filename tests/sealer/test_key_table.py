"""The table of the keys that a pass of compaction has seen."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings as hypothesis_settings, strategies as st

from shm.kernels.record.last_of_key import SLOT_WORDS
from smq.sealer.key_table import SLOTS_MIN, KeyTable, slots_for

SECRET = bytes(16)


def empty(slots: int) -> np.ndarray:
    return np.zeros((slots, SLOT_WORDS), np.uint64)


def test_a_segment_with_more_keys_than_that_gets_a_table_for_itself() -> None:
    large = slots_for(10 * SLOTS_MIN, 5 * SLOTS_MIN, SLOTS_MIN)
    assert KeyTable(empty(large), SECRET).has_room(5 * SLOTS_MIN)
    small = slots_for(10 * SLOTS_MIN, 1, SLOTS_MIN)
    assert not KeyTable(empty(small), SECRET).has_room(5 * SLOTS_MIN)


@hypothesis_settings(deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=3), max_size=20),
    st.integers(0, 5),
)
def test_keys_of_any_slice_are_the_ones_noted(keys: list[bytes | None], skip: int) -> None:
    rows = pa.table({"_offset": pa.array(range(len(keys)), pa.int64()), "_key": keys}).cast(
        pa.schema([("_offset", pa.int64()), ("_key", pa.binary())])
    )[skip:]
    words = empty(SLOTS_MIN)
    table = KeyTable(words, SECRET)
    table.note(rows.combine_chunks())
    left = keys[skip:]
    expected = [key is not None and key not in left[i + 1 :] for i, key in enumerate(left)]
    assert table.last(rows.combine_chunks()).tolist() == expected
    assert table.keys == len({key for key in left if key is not None})
    assert KeyTable(words, SECRET, is_empty=False).keys == table.keys
