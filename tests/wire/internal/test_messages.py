"""The table: each message of it comes out as it went in."""

from itertools import chain
from typing import Any

from hypothesis import given, strategies as st

from smq.wire.internal import groups, manifest, messages
from smq.wire.internal.form import (
    Question,
    Questions,
    answer_type,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    name_of,
)
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import FOR_COORDINATOR, FOR_SEALER, FOR_SHARD, FOR_WORKER

TABLES = (FOR_SHARD, FOR_SEALER, FOR_WORKER, FOR_COORDINATOR)
ALL: Questions = dict(chain.from_iterable(table.items() for table in TABLES))
KINDS: list[type[Question[Any]]] = sorted(ALL.values(), key=name_of)


def body_of(encoded: bytes) -> bytes:
    [frame] = InternalReader().receive(encoded)
    return frame.body


def test_each_question_is_answered_by_somebody() -> None:
    found = {
        each
        for module in (groups, manifest, messages)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Question) and each is not Question
    }
    assert set(KINDS) == found


def test_questions_of_both_sealer_and_worker_are_forwarded() -> None:
    assert set(FOR_SEALER) & set(FOR_WORKER) == {
        "cold", "describe_storage", "find_payloads", "newest_record", "offset_for_time",
    }  # fmt: skip
    names = [name for table in TABLES for name in table]
    assert len(names) == len(ALL) + 5


@given(st.data())
def test_each_question_comes_out_as_it_went_in(data: st.DataObject) -> None:
    for kind in KINDS:
        question = data.draw(st.from_type(kind))
        assert decode_question(body_of(encode_question(1, question)), ALL) == question


@given(st.data())
def test_each_answer_comes_out_as_it_went_in(data: st.DataObject) -> None:
    for kind in KINDS:
        answer = data.draw(st.from_type(answer_type(kind)))
        assert decode_answer(kind, body_of(encode_answer(1, answer))) == answer
