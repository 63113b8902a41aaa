"""The messages about pushed metrics: each comes out as it went in."""

from smq.wire.internal.form import (
    by_name,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.telemetry import FindPush, ListPushes, PushedMetrics, PushingClient


def body_of(encoded: bytes) -> bytes:
    [frame] = InternalReader().receive(encoded)
    return frame.body


def test_questions_come_out_as_they_went_in() -> None:
    for question in (ListPushes(7), FindPush("an-id")):
        known = by_name(ListPushes, FindPush)
        assert decode_question(body_of(encode_question(1, question)), known) == question


def test_answers_come_out_as_they_went_in() -> None:
    clients = [
        PushingClient(
            "an-id", "app", "librdkafka", "2.3", "host", "4711", ["a."], 500, 2, 3, 4, 5, 0
        )
    ]
    assert decode_answer(ListPushes, body_of(encode_answer(1, clients))) == clients
    line, _, data = body_of(encode_answer(1, PushedMetrics(4), b"data")).partition(b"\n")
    assert decode_answer(FindPush, line) == PushedMetrics(4)
    assert data == b"data"
