"""The table of transactions' messages: each comes out as it went in."""

from typing import Any

from hypothesis import given, strategies as st

from smq.wire.internal import transactions
from smq.wire.internal.form import (
    Question,
    answer_type,
    by_name,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from smq.wire.internal.frames import InternalReader

KINDS: list[type[Question[Any]]] = [
    each
    for each in vars(transactions).values()
    if isinstance(each, type) and issubclass(each, Question) and each is not Question
]
ALL = by_name(*KINDS)


def body_of(encoded: bytes) -> bytes:
    [frame] = InternalReader().receive(encoded)
    return frame.body


@given(st.data())
def test_each_question_and_answer_comes_out_as_it_went_in(data: st.DataObject) -> None:
    for kind in KINDS:
        question = data.draw(st.from_type(kind))
        assert decode_question(body_of(encode_question(1, question)), ALL) == question
        answer = data.draw(st.from_type(answer_type(kind)))
        assert decode_answer(kind, body_of(encode_answer(1, answer))) == answer
