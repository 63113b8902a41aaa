"""A question and its answer, over a socket that may break."""

from pathlib import Path

import pytest

from smq.app.process.asker import Asker, QuestionRefused
from smq.model.errors import Unavailable
from smq.wire.internal.form import Failed, decode_question
from smq.wire.internal.frames import InternalFrame
from smq.wire.internal.messages import (
    FOR_SHARD,
    Batches,
    Ends,
    FindEnds,
    MarkSealed,
    RaiseLogStart,
    RawBatches,
    Unsealed,
)
from tests.app.fake_peers import answer_body, answered_by_a_thread, listen

BREAK, REFUSE, ENDS, GARBLED = Unsealed(1), MarkSealed(1, 2), FindEnds(1), RaiseLogStart(1, 2)


def _shard(frame: InternalFrame) -> bytes:
    match decode_question(frame.body, FOR_SHARD):
        case Batches(bytes_max=count):
            return answer_body(RawBatches(count), bytes(count))
        case FindEnds():
            return answer_body(Ends(3, 4))
        case MarkSealed():
            return answer_body(Failed("no, because"))
        case RaiseLogStart():
            return answer_body("yes")
    return b""


def test_an_answer_is_json_and_perhaps_bytes(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _shard):
        asker = Asker(tmp_path / "s.sock")
        assert asker.ask(ENDS) == (Ends(3, 4), b"")
        assert asker.ask(Batches(1, 0, 3_000_000)) == (RawBatches(3_000_000), bytes(3_000_000))
        asker.close()


def test_a_refusal_has_its_sentence(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _shard):
        asker = Asker(tmp_path / "s.sock")
        with pytest.raises(QuestionRefused, match="s: mark_sealed: no, because"):
            asker.ask(REFUSE)
        asker.close()


def test_an_answer_of_another_type_is_a_refusal(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _shard):
        asker = Asker(tmp_path / "s.sock")
        with pytest.raises(
            QuestionRefused, match="the answer to raise_log_start is malformed: 'yes'"
        ):
            asker.ask(GARBLED)
        asker.close()


def test_after_a_break_the_next_question_connects_again(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _shard):
        asker = Asker(tmp_path / "s.sock")
        with pytest.raises(Unavailable, match="no answer"):
            asker.ask(BREAK)
        assert asker.ask(ENDS)[0] == Ends(3, 4)
        asker.close()


def test_asking_an_absent_process_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        Asker(tmp_path / "nobody.sock").ask(ENDS)


def test_somebody_who_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with listen(tmp_path / "mute.sock"), pytest.raises(Unavailable):
        Asker(tmp_path / "mute.sock", wait_s=0.05).ask(ENDS)
