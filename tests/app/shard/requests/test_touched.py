"""The kernel learns the state of the clients that a turn has touched."""

from types import SimpleNamespace
from typing import Any, cast

from smq.app.shard.requests.touched import Touched


def client(*, closed: bool = False) -> Any:
    class Client:
        pass

    made = Client()
    made.closed = closed  # type: ignore[attr-defined]
    return made


def test_all_of_a_turn_are_noted_and_forgotten_at_its_end() -> None:
    quick: list[Any] = []
    answering = SimpleNamespace(dirty={})
    touched = Touched(quick.append, cast("Any", answering))
    one, other, gone = client(), client(), client(closed=True)
    touched.add(one)
    touched.add(gone)
    answering.dirty[other] = None
    touched.note_all()
    assert set(quick) == {one, other}, "a closed one has no descriptor any more"
    answering.dirty.clear()
    quick.clear()
    touched.end_turn()
    assert quick == [one]
    quick.clear()
    touched.end_turn()
    assert quick == []
