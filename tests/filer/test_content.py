"""An upload is read twice, and must be the same both times."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.twin import log as plain
from smq.filer.content import PIECE_BYTES, Content, SourceChanged, crc_of

DATA = os.urandom(2 * PIECE_BYTES + 3)


def test_it_is_named_by_what_is_read_first_and_sent_in_copies(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        for content in (
            Content.of_file("source", file.fileno()),
            Content.of_memory(memoryview(DATA)),
        ):
            assert (content.length, content.crc32c) == (len(DATA), crc_of(DATA))
            for size in (1000, len(DATA), 2 * len(DATA)):
                pieces = list(content.pieces(size))
                assert b"".join(pieces) == DATA
                assert all(len(piece) == size for piece in pieces[:-1])


@pytest.mark.parametrize("size", [1000, len(DATA)])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__(-1, data[-1] ^ 1),
        lambda data: data.__delitem__(slice(5, None)),
        lambda data: data.clear(),
    ],
    ids=["other bytes", "cut short", "empty"],
)
def test_a_source_that_changes_during_its_upload_raises_after_the_last_piece(
    change: Callable[[bytearray], None], size: int
) -> None:
    data = bytearray(DATA)
    content = Content("a.bin", lambda start, length: bytes(data[start : start + length]))
    pieces = content.pieces(size)
    change(data)
    with pytest.raises(SourceChanged, match=r"a\.bin: it changed while it was uploaded"):
        list(pieces)


def test_a_source_that_grows_during_its_upload_is_uploaded_at_its_first_length() -> None:
    data = bytearray(DATA)
    content = Content("a.bin", lambda start, length: bytes(data[start : start + length]))
    data += b"more"
    assert b"".join(content.pieces(1000)) == DATA


@settings(deadline=None)
@given(st.binary(max_size=5000))
def test_the_check_is_that_of_the_bytes(data: bytes) -> None:
    assert crc_of(data) == plain.crc32c(data)
    assert crc_of(np.frombuffer(data, np.uint8).data) == plain.crc32c(data)
