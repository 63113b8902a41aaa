"""Arrivals are numbered upwards, over restarts and rollbacks."""

from pathlib import Path

from smq.store.arrivals import Arrivals
from smq.store.database import Database


def test_each_number_is_greater_than_those_before(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "store.sqlite")
    arrivals = Arrivals(database)
    seen = [arrivals.next() for _ in range(3)]
    database.commit()
    database.close()
    database = Database.open(tmp_path / "store.sqlite")
    arrivals = Arrivals(database)
    seen += [arrivals.next() for _ in range(3)]
    assert seen == sorted(set(seen))
    database.close()


def test_a_number_that_was_rolled_back_is_given_again_but_never_a_smaller_one(
    tmp_path: Path,
) -> None:
    database = Database.open(tmp_path / "store.sqlite")
    arrivals = Arrivals(database)
    kept = arrivals.next()
    database.commit()
    arrivals.next()
    database.rollback()
    arrivals.forget_block()
    later = arrivals.next()
    database.commit()
    assert later > kept
    assert Arrivals(database).next() > later
    database.close()
