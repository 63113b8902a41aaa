"""Questions about the manifest come out as they went in, and say what they are about by name."""

from typing import Any

from hypothesis import given, strategies as st

from smq.wire.internal import manifest
from smq.wire.internal.form import (
    Question,
    answer_type,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import FOR_COORDINATOR

KINDS: list[type[Question[Any]]] = [
    each
    for each in vars(manifest).values()
    if isinstance(each, type) and issubclass(each, Question) and each is not Question
]


def body_of(encoded: bytes) -> bytes:
    [frame] = InternalReader().receive(encoded)
    return frame.body


@given(st.data())
def test_each_question_and_answer_comes_out_as_it_went_in(data: st.DataObject) -> None:
    for kind in KINDS:
        question = data.draw(st.from_type(kind))
        assert decode_question(body_of(encode_question(1, question)), FOR_COORDINATOR) == question
        answer = data.draw(st.from_type(answer_type(kind)))
        assert decode_answer(kind, body_of(encode_answer(1, answer))) == answer
