"""Frames between our own processes."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import PeerError
from smq.wire.internal.frames import (
    FIRST_BYTES_MIN,
    KIND_COMMAND,
    KIND_KAFKA,
    LARGE_BYTES,
    InternalFrame,
    InternalReader,
    WrittenPeer,
    decode_relay,
    encode_frame,
    encode_relay,
    frame_pieces,
)

FRAMES = [
    InternalFrame(1, KIND_KAFKA, b""),
    InternalFrame(2**64 - 1, KIND_COMMAND, b"x" * 300),
    InternalFrame(3, KIND_KAFKA, b"\0\1\2"),
    InternalFrame(4, KIND_KAFKA, bytes(range(256)) * (LARGE_BYTES // 256)),
    InternalFrame(5, KIND_COMMAND, b"last"),
]
STREAM = b"".join(encode_frame(frame.id, frame.kind, frame.body) for frame in FRAMES)


@given(st.lists(st.integers(0, len(STREAM))))
def test_frames_are_the_same_however_the_stream_is_cut(places: list[int]) -> None:
    cuts = [0, *sorted(places), len(STREAM)]
    reader = InternalReader()
    frames = [frame for start, end in pairwise(cuts) for frame in reader.receive(STREAM[start:end])]
    assert [(frame.id, frame.kind) for frame in frames] == [frame[:2] for frame in FRAMES]
    assert all(frame.body == sent.body for frame, sent in zip(frames, FRAMES, strict=True))
    assert all(len(frame.first) >= FIRST_BYTES_MIN for frame in frames if frame.rest)


def test_a_large_body_is_copied_neither_as_a_whole_nor_again() -> None:
    body = bytes(8 * LARGE_BYTES)
    pieces = frame_pieces(7, KIND_KAFKA, [body])
    assert pieces[1] is body
    assert b"".join(pieces) == encode_frame(7, KIND_KAFKA, body)
    reader, stream, size = InternalReader(), memoryview(b"".join(pieces)), LARGE_BYTES // 4
    received = (stream[at : at + size] for at in range(0, len(stream), size))
    [frame] = [each for part in received for each in reader.receive(part)]
    assert max(map(len, (frame.first, *frame.rest))) <= size
    assert frame.body == body
    [small] = frame_pieces(7, KIND_KAFKA, [b"small"])
    assert small == encode_frame(7, KIND_KAFKA, b"small")


def test_a_large_body_in_many_pieces_goes_and_comes_in_few() -> None:
    body = [bytes([i % 256]) * 30_000 for i in range(300)]
    pieces = frame_pieces(7, KIND_KAFKA, body)
    assert pieces[1:] == body
    reader = InternalReader()
    [frame] = [each for part in pieces for each in reader.receive(part)]
    assert frame.body == b"".join(body)
    assert len(frame.rest) < 150
    assert max(map(len, frame.rest)) < 200_000


@pytest.mark.parametrize("length", [0, 8, 2**32 - 1])
def test_a_length_that_cannot_be_is_a_broken_peer(length: int) -> None:
    with pytest.raises(PeerError):
        list(InternalReader().receive(length.to_bytes(4, "little") + bytes(9)))


@given(st.binary(max_size=100))
def test_garbage_gives_frames_or_a_broken_peer(garbage: bytes) -> None:
    try:
        list(InternalReader().receive(garbage))
    except PeerError:
        return


def test_a_relayed_request_comes_out_as_it_went_in() -> None:
    asker = WrittenPeer("User:CN=é,O=b", "127.0.0.1", "")
    relayed = decode_relay(encode_relay(3, asker, memoryview(b"request")))
    assert (relayed.node_id, relayed.asker) == (3, asker)
    assert bytes(relayed.request) == b"request"
