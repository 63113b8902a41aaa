"""The questions of a move: each comes out as it went in."""

from typing import Any

import pytest

from smq.wire.internal.form import (
    Question,
    by_name,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.moves import (
    Adopted,
    AdoptPartition,
    ClosedAt,
    ClosePartition,
    EpochStart,
    ReadState,
    ReadTail,
    StatePage,
    TailBatches,
)

ASKED: list[tuple[Question[Any], object, bytes | None]] = [
    (ClosePartition(7, 2), ClosedAt(100, [EpochStart(3, 0), EpochStart(5, 40)]), None),
    (AdoptPartition(7, 2, 9, 1, 100), Adopted(100), None),
    (ReadState(7, 2, 1), StatePage(4, 3), b"page"),
    (ReadTail(7, 50, 100, 1 << 20), TailBatches(5), b"batch"),
]


def body_of(encoded: bytes) -> bytes:
    [frame] = InternalReader().receive(encoded)
    return frame.body


@pytest.mark.parametrize(("question", "answer", "data"), ASKED)
def test_questions_and_answers_come_out_as_they_went_in(
    question: Question[Any], answer: object, data: bytes | None
) -> None:
    kind = type(question)
    assert decode_question(body_of(encode_question(1, question)), by_name(kind)) == question
    line, _, rest = body_of(encode_answer(1, answer, data)).partition(b"\n")
    assert decode_answer(kind, line) == answer
    assert rest == (data or b"")
