"""A shard's questions to the coordinator and the sealer, over links that break."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smq.app.process.acceptor import Acceptor
from smq.app.process.link import Link
from smq.app.process.peers import UNSENT_BYTES_MAX, Neighbour, Peers
from smq.model.errors import PeerError
from smq.wire.internal.form import Failed, Question, by_name, decode_question, encode_answer
from smq.wire.internal.frames import (
    KIND_COMMAND,
    KIND_KAFKA,
    InternalFrame,
    InternalReader,
    Relayed,
    WrittenPeer,
    decode_relay,
    encode_frame,
)
from smq.wire.internal.messages import FOR_SEALER, FindPayloads, Pressure
from smq.wire.internal.reads import BatchFile, Cold, OffsetForTime
from smq.wire.internal.transactions import AddPartitions
from tests.app.fake_peers import TidyLoop, answer_body, answer_in, listen, turn_until


@pytest.fixture
def loop() -> Iterator[TidyLoop]:
    loop = TidyLoop()
    yield loop
    loop.close()


def question(body: bytes) -> Any:
    return lambda frame_id: encode_frame(frame_id, KIND_COMMAND, body)


def breaks_when_told(frame: InternalFrame) -> bytes:
    if frame.body == b"break":
        raise PeerError("as the test wants it")  # It drops the link.
    return b"answer to " + frame.body


def test_answers_may_come_in_any_order_and_unasked_ones_are_ignored(
    loop: TidyLoop, tmp_path: Path
) -> None:
    asked: list[InternalFrame] = []

    def frame(link: Link, frame: InternalFrame) -> None:
        asked.append(frame)
        if len(asked) == 2:
            link.send(encode_frame(99, KIND_COMMAND, b"to nobody"))
            for each in reversed(asked):
                link.send(encode_frame(each.id, KIND_COMMAND, b"answer to " + each.body))

    def accepted(sock: socket.socket, _address: str) -> None:
        loop.opened.append(Link(loop, sock, frame, lambda _: None))

    listener = listen(tmp_path / "p.sock")
    loop.opened.append(listener)
    Acceptor(loop, listener, accepted)
    peer = Neighbour(loop, tmp_path / "p.sock")
    answers: list[tuple[str, bytes]] = []
    peer.ask(question(b"one"), lambda answer: answers.append(("one", answer)))
    peer.ask(question(b"two"), lambda answer: answers.append(("two", answer)))
    turn_until(loop, lambda: len(answers) == 2)
    assert answers == [("two", b"answer to two"), ("one", b"answer to one")]
    peer.close()


def test_a_break_answers_with_nothing_and_the_next_question_connects_again(
    loop: TidyLoop, tmp_path: Path
) -> None:
    answer_in(loop, tmp_path / "p.sock", breaks_when_told)
    peer = Neighbour(loop, tmp_path / "p.sock")
    answers: list[bytes] = []
    peer.ask(question(b"break"), answers.append)
    peer.ask(question(b"behind it"), answers.append)
    turn_until(loop, lambda: len(answers) == 2)
    assert answers == [b"", b""]
    peer.ask(question(b"again"), answers.append)
    turn_until(loop, lambda: len(answers) == 3)
    assert answers[2] == b"answer to again"
    peer.close()


def test_a_question_to_an_absent_peer_is_answered_with_nothing(
    loop: TidyLoop, tmp_path: Path
) -> None:
    peer = Neighbour(loop, tmp_path / "nobody.sock")
    answers: list[bytes] = []
    peer.ask(question(b"x"), answers.append)
    assert answers == [b""]


def test_a_question_is_refused_while_too_many_bytes_wait_for_a_stopped_peer(
    loop: TidyLoop, tmp_path: Path
) -> None:
    path = tmp_path / "stopped.sock"
    listener = listen(path)
    loop.opened.append(listener)
    peer = Neighbour(loop, path)
    early: list[bytes] = []
    late: list[bytes] = []
    for _ in range(3):
        peer.ask(question(bytes(UNSENT_BYTES_MAX // 2)), early.append)
    peer.ask(question(b"x"), late.append)
    assert late == [b""]
    assert early == [], "they still wait for their answers"
    peer.close()


def test_the_coordinator_learns_who_asks_and_what(loop: TidyLoop, tmp_path: Path) -> None:
    frames: list[InternalFrame] = []

    def coordinator(frame: InternalFrame) -> bytes:
        frames.append(frame)
        return b"response"

    answer_in(loop, tmp_path / "c.sock", coordinator)
    peers = Peers(loop, 3, tmp_path / "c.sock", tmp_path / "s.sock")
    answers: list[bytes] = []
    asker = WrittenPeer("User:alice", "a-host", "SASL")
    peers.relay(asker, memoryview(b"request"), lambda *pieces: answers.extend(pieces))
    turn_until(loop, lambda: bool(answers))
    assert answers == [b"response"]
    assert frames[0].kind == KIND_KAFKA
    assert decode_relay(frames[0].body) == Relayed(3, asker, memoryview(b"request"))
    peers.close()


def test_the_coordinator_answers_a_question_unless_it_is_gone(
    loop: TidyLoop, tmp_path: Path
) -> None:
    def coordinator(frame: InternalFrame) -> bytes:
        match decode_question(frame.body, by_name(AddPartitions)):
            case AddPartitions(transactional_id="a", numbers=numbers):
                return answer_body([0] * len(numbers))
        raise PeerError("as the test wants it")

    answer_in(loop, tmp_path / "c.sock", coordinator)
    peers = Peers(loop, 3, tmp_path / "c.sock", tmp_path / "s.sock")
    answers: list[Any] = []
    for transactional_id in ("a", "b"):
        peers.ask_coordinator(AddPartitions(transactional_id, 1, 0, [7, 8], 0), answers.append)
        turn_until(loop, lambda: len(answers) == 1 + (transactional_id == "b"))  # noqa: B023
    assert answers == [[0, 0], Failed("the coordinator is gone")]
    peers.close()


def test_the_sealer_answers_what_it_knows_and_otherwise_nothing(
    loop: TidyLoop, tmp_path: Path
) -> None:
    def sealer(frame: InternalFrame) -> bytes:
        match decode_question(frame.body, FOR_SEALER):
            case Cold(number=number):
                return answer_body(BatchFile("x", 0, 1, number))
            case OffsetForTime():
                return answer_body(Failed("no, because"))
            case FindPayloads():
                return answer_body({"a": 7})
        raise PeerError("as the test wants it")

    answer_in(loop, tmp_path / "s.sock", sealer)
    peers = Peers(loop, 3, tmp_path / "c.sock", tmp_path / "s.sock")
    answers: list[Any] = []
    for asked in (Cold(5, 0, 1), OffsetForTime(1, 2), FindPayloads(["a"]), Pressure()):
        peers.ask_sealer(asked, answers.append)
    turn_until(loop, lambda: len(answers) == 4)
    assert answers[:2] == [BatchFile("x", 0, 1, 5), Failed("no, because")]
    assert [isinstance(each, Failed) for each in answers[2:]] == [True, True]
    assert "find_payloads is malformed" in answers[2].error
    peers.close()


def test_a_sealer_that_hangs_is_not_waited_for(loop: TidyLoop, tmp_path: Path) -> None:
    with listen(tmp_path / "s.sock") as listener:
        peers = Peers(loop, 3, tmp_path / "c.sock", tmp_path / "s.sock", sealer_wait_ms=50)
        answers: list[Any] = []
        peers.ask_sealer(Pressure(), answers.append)
        turn_until(loop, lambda: bool(answers))
        sealer, _ = listener.accept()
        with sealer:
            [asked] = InternalReader().receive(sealer.recv(1 << 16))
            sealer.sendall(encode_answer(asked.id, answer=True))
            turn_until(loop, lambda: not peers._sealer._waiting)
        peers.ask_sealer(Pressure(), answers.append)
        turn_until(loop, lambda: len(answers) == 2)
    assert answers == [Failed("the sealer takes too long")] * 2
    peers.close()


def test_a_question_is_asked_again_of_the_next_sealer_and_of_no_third(
    loop: TidyLoop, tmp_path: Path
) -> None:
    asked: list[Question[Any]] = []
    once, always = Pressure(), OffsetForTime(1, 2)

    def dies(frame: InternalFrame) -> bytes:
        asked.append(decode_question(frame.body, FOR_SEALER))
        if asked in ([once], [once, once, always], [once, once, always, always]):
            raise PeerError("as the test wants it")
        return answer_body(answer=True)

    answer_in(loop, tmp_path / "s.sock", dies)
    peers = Peers(loop, 3, tmp_path / "c.sock", tmp_path / "s.sock")
    answers: list[Any] = []
    questions: list[Question[Any]] = [once, always]
    for count, question in enumerate(questions, 1):
        peers.ask_sealer(question, answers.append)
        turn_until(loop, lambda: len(answers) == count)  # noqa: B023
    assert answers == [True, Failed("the sealer is gone")]
    assert asked == [once, once, always, always]
    peers.close()
