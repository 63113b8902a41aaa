"""A question and its answer, over a socket that may break."""

import json
from pathlib import Path

import pytest

from smq.app.process.asker import Asker, Refused
from smq.model.errors import Unavailable
from smq.wire.internal import InternalFrame
from tests.app.fake_peers import answered_by_a_thread, listen


def _echo(frame: InternalFrame) -> bytes:
    question = json.loads(frame.body)
    if question["do"] == "break":
        return b""
    if question["do"] == "refuse":
        return json.dumps({"error": "no, because"}).encode()
    return json.dumps({"ok": question}).encode() + b"\n" + bytes(question.get("bytes", 0))


def test_an_answer_is_json_and_perhaps_bytes(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _echo):
        asker = Asker(tmp_path / "s.sock")
        assert asker.ask({"do": "x"}) == ({"do": "x"}, b"")
        assert asker.ask({"do": "x", "bytes": 3_000_000})[1] == bytes(3_000_000)
        asker.close()


def test_a_refusal_has_its_sentence(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _echo):
        asker = Asker(tmp_path / "s.sock")
        with pytest.raises(Refused, match="s: refuse: no, because"):
            asker.ask({"do": "refuse"})
        asker.close()


def test_after_a_break_the_next_question_connects_again(tmp_path: Path) -> None:
    with answered_by_a_thread(tmp_path / "s.sock", _echo):
        asker = Asker(tmp_path / "s.sock")
        with pytest.raises(Unavailable, match="no answer"):
            asker.ask({"do": "break"})
        assert asker.ask({"do": "x"})[0] == {"do": "x"}
        asker.close()


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        Asker(tmp_path / "nobody.sock").ask({"do": "x"})


def test_somebody_who_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with listen(tmp_path / "mute.sock"), pytest.raises(Unavailable):
        Asker(tmp_path / "mute.sock", wait_s=0.05).ask({"do": "x"})
