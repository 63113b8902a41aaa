"""Questions about sealed records have a form in JSON, with their nested fields."""

import pytest

from smq.model.segments import BatchLimits, SealedPartition
from smq.wire.internal.form import Question, decode_question, encode_question
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import FOR_SEALER, FOR_WORKER
from smq.wire.internal.reads import BatchFile, Cold, Inline, MakeInline, OffsetForTime

PLACE = SealedPartition("kafka", "orders", 0, 1)
LIMITS = BatchLimits(1024, 100_000)
INLINE = Inline(1, 2, 3, 4, LIMITS, must_give=False)


@pytest.mark.parametrize(
    "question",
    [
        Cold(1, 2, 3, LIMITS, must_give=False),
        INLINE,
        MakeInline(1, PLACE, INLINE),
        OffsetForTime(1, 2, 3),
    ],
)
def test_questions_are_read_as_they_were_written(question: Question[BatchFile]) -> None:
    [frame] = InternalReader().receive(encode_question(7, question))
    assert decode_question(frame.body, {**FOR_SEALER, **FOR_WORKER}) == question
