"""The moves that have ended."""

from pathlib import Path

from smq.store.moves import MOVES_MAX, TEXT_BYTES_MAX, StoredMove, open_moves
from smq.store.store import Store

MOVE = StoredMove(1000, 30, "clicks", 0, 1, 2, "User:ada", "10.0.0.1", "by hand")


def test_moves_are_read_the_newest_first_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.moves.add(MOVE)
    store.moves.add(MOVE._replace(partition=1, outcome="the target refuses: it is full"))
    store.commit()
    moves = open_moves(path)
    assert [each.partition for each in moves.newest(10)] == [1, 0]
    assert moves.newest(2)[1] == MOVE
    moves.close()
    store.close()


def test_old_moves_go(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.sqlite")
    for partition in range(MOVES_MAX + 2):
        store.moves.add(MOVE._replace(partition=partition))
    kept = store.moves.newest(MOVES_MAX + 2)
    assert [len(kept), kept[-1].partition] == [MOVES_MAX, 2]
    store.close()


def test_of_a_long_text_the_beginning_is_kept(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.sqlite")
    store.moves.add(MOVE._replace(principal="é" * 10_000))
    [kept] = store.moves.newest(1)
    assert kept.principal == "é" * (TEXT_BYTES_MAX // 2)
    store.close()
