"""Varints and tags: compiled, interpreted and plain alike."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.base.wire import (
    BAD,
    read_length,
    read_uvarint,
    skip_string,
    skip_tags,
    write_length,
)
from shm.kernels.twin import produce as plain


@settings(deadline=None)
@given(st.binary(max_size=8))
def test_varints_and_tags_read_alike_compiled_interpreted_and_plain(data: bytes) -> None:
    array, fields = np.frombuffer(data, np.uint8), plain.Fields(data)
    try:
        expected = (fields.varint(), len(data) - len(fields.left))
    except plain.Cut:
        expected = (0, -1)
    assert read_uvarint(array, 0, len(data)) == expected
    assert read_uvarint.py_func(array, 0, len(data)) == expected  # type: ignore[attr-defined]
    fields = plain.Fields(data)
    try:
        fields.tags(compact=True)
        after = len(data) - len(fields.left)
    except plain.Cut:
        after = -1
    assert skip_tags(array, 0, len(data)) == after
    assert skip_tags.py_func(array, 0, len(data)) == after  # type: ignore[attr-defined]


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("length", [-1, 0, 1, 126, 127, 128, 300])
def test_a_length_is_read_as_it_was_written(length: int, width: int, flexible: bool) -> None:
    out = np.zeros(4 + 300, np.uint8)
    at = write_length(out, 0, length, flexible, width)
    assert read_length(out, 0, len(out), flexible, width) == (length, at)
    assert read_length(out, 0, at - 1, flexible, width)[1] == BAD


def test_a_length_that_leaves_the_bytes_is_bad() -> None:
    data = np.array([0, 3, 1, 1], np.uint8)
    assert read_length(data, 0, 4, False, 2) == (0, BAD)
    assert skip_string(data, 0, 4, False) == BAD
    data[1] = 2
    assert skip_string(data, 0, 4, False) == 4
