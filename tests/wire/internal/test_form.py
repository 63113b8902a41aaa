"""Questions and answers as JSON: what comes out is what went in, or a sentence."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import PeerError
from smq.model.frozen import frozen
from smq.wire.internal.form import (
    Failed,
    Question,
    answer_type,
    by_name,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    name_of,
)
from smq.wire.internal.frames import KIND_COMMAND, InternalFrame, InternalReader


class Row(NamedTuple):
    """Fields of one kind."""

    low: int
    high: int


class Mixed(NamedTuple):
    """Fields of several kinds."""

    name: str
    rows: list[Row]


@frozen
class Found:
    """An answer."""

    mixed: Mixed
    by_key: dict[str, tuple[int, bool] | None]


@frozen
class FindSome(Question[Found | None]):
    """A question."""

    row: Row
    keys: list[str]
    shown: bool = True


QUESTIONS = by_name(FindSome)
ROW = {"do": "find_some", "row": [1, 2], "keys": []}


def frame_of(encoded: bytes) -> InternalFrame:
    [frame] = InternalReader().receive(encoded)
    return frame


def test_a_question_is_named_by_its_class_and_names_its_answer() -> None:
    assert name_of(FindSome) == "find_some"
    assert answer_type(FindSome) == Found | None
    frame = frame_of(encode_question(9, FindSome(Row(1, 2), ["a"])))
    assert (frame.id, frame.kind) == (9, KIND_COMMAND)
    fields = {"do": "find_some", "row": [1, 2], "keys": ["a"], "shown": True}
    assert json.loads(frame.body) == fields


@given(st.from_type(FindSome))
def test_a_question_comes_out_as_it_went_in(question: FindSome) -> None:
    assert decode_question(frame_of(encode_question(1, question)).body, QUESTIONS) == question


@given(st.one_of(st.none(), st.from_type(Found), st.from_type(Failed)))
def test_an_answer_comes_out_as_it_went_in(answer: Found | Failed | None) -> None:
    assert decode_answer(FindSome, frame_of(encode_answer(1, answer)).body) == answer


def test_a_field_with_a_default_may_be_missing() -> None:
    assert decode_question(json.dumps(ROW).encode(), QUESTIONS) == FindSome(Row(1, 2), [])


def test_bytes_stand_behind_a_line_of_json() -> None:
    line, _, data = frame_of(encode_answer(1, None, b"a\nb")).body.partition(b"\n")
    assert decode_answer(FindSome, line) is None
    assert data == b"a\nb"


def test_a_failure_is_identified_by_its_problem_or_else_by_its_sentence() -> None:
    assert Failed("a/b: it is away", "it is away").what == "it is away"
    assert Failed("a/b: it is damaged").what == "a/b: it is damaged"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"{", "it is no JSON"),
        (b"\xff", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[]", "it is no object"),
        ({}, "there is no command None"),
        ({"do": ["find_some"]}, "there is no command"),
        ({"do": "dance"}, "there is no command 'dance'"),
        ({"do": "find_some"}, "find_some is malformed: keys, row missing"),
        ({**ROW, "kees": []}, "find_some is malformed: there is no field 'kees'"),
        ({**ROW, "row": [1]}, "find_some is malformed: [1] is no row of 2 fields"),
        ({**ROW, "row": [1, True]}, "find_some is malformed: True is no int"),
        ({**ROW, "row": {"low": 1}}, "is no row of 2 fields"),
        ({**ROW, "shown": 1}, "1 is no bool"),
        ({**ROW, "keys": "a"}, "'a' is no list"),
        ({**ROW, "keys": [None]}, "None is no str"),
    ],
)
def test_a_question_that_is_none_is_a_broken_peer(said: Any, why: str) -> None:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    with pytest.raises(PeerError) as broken:
        decode_question(body, QUESTIONS)
    assert why in str(broken.value)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"3",
        b"{}",
        b'{"ok": 3}',
        b'{"ok": {"mixed": ["a", []], "by_key": []}}',
        b'{"error": 1}',
    ],
)
def test_an_answer_of_another_type_is_failed_with_a_sentence(said: bytes) -> None:
    answer = decode_answer(FindSome, said)
    assert isinstance(answer, Failed)
    assert answer.error.startswith("the answer to find_some is malformed: ")


@given(st.binary(max_size=200))
def test_garbage_is_a_broken_peer_or_a_failed_answer(garbage: bytes) -> None:
    assert isinstance(decode_answer(FindSome, garbage), Failed)
    with pytest.raises(PeerError):
        decode_question(garbage, QUESTIONS)


@frozen
class Formless(Question[set[int]]):
    """Sets have no form."""

    union: int | str


def test_a_type_without_a_form_is_our_mistake() -> None:
    with pytest.raises(TypeError, match="has no form"):
        decode_answer(Formless, b'{"ok": []}')
    with pytest.raises(TypeError, match="has no form"):
        decode_question(b'{"do": "formless"}', by_name(Formless))
