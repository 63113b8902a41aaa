"""The talk before a session: round trip, and PeerError for anything else."""

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import PeerError
from smq.wire.attach import ANSWER_BYTES, HELLO_BYTES, REFUSAL_BYTES_MAX, AttachReply, Hello

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=64)


@given(st.integers(0, 2**16 - 1), WORDS)
def test_a_hello_comes_back(node_id: int, cluster_id: str) -> None:
    hello = Hello(node_id, cluster_id)
    assert Hello.decode(hello.encode()) == hello
    assert len(hello.encode()) == HELLO_BYTES


@given(st.integers(0, 2**16 - 1), WORDS)
def test_an_answer_comes_back(descriptors: int, refusal: str) -> None:
    answer = AttachReply(descriptors, refusal)
    assert AttachReply.decode(answer.encode()) == answer
    assert len(answer.encode()) == ANSWER_BYTES


def test_a_long_refusal_is_cut() -> None:
    assert len(AttachReply.decode(AttachReply(0, "é" * 300).encode()).refusal) <= REFUSAL_BYTES_MAX


@given(st.binary(max_size=2 * ANSWER_BYTES))
def test_garbage_is_not_an_attach_handshake(data: bytes) -> None:
    for kind in (Hello, AttachReply):
        with pytest.raises(PeerError, match="attach handshake"):
            kind.decode(data)


def test_another_version_is_named() -> None:
    for message in (Hello(1, "c").encode(), AttachReply(0, "").encode()):
        other = message[:4] + (9).to_bytes(2, "little") + message[6:]
        with pytest.raises(PeerError, match="version 9"):
            (Hello if len(message) == HELLO_BYTES else AttachReply).decode(other)
