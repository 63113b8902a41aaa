"""The last offset of each key: compiled and plain agree."""

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.arrow import read_only
from shm.kernels.record.last_of_key import SLOT_WORDS, find_last, note_keys
from shm.kernels.twin import keys as plain

Rows = list[tuple[int, bytes | None]]
KEYS = st.none() | st.binary(max_size=2) | st.binary(max_size=40)
SECRET = np.frombuffer(b"a secret of ours", np.uint64)
ROWS = st.lists(st.tuples(st.integers(0, 60), KEYS), max_size=30)


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    lengths = np.array([-1 if key is None else len(key) for _, key in rows], np.int64)
    places = np.concatenate([[0], np.maximum(lengths, 0).cumsum()])[: len(rows)].astype(np.int64)
    data = read_only(b"".join(key or b"" for _, key in rows))
    return data, places, lengths, np.array([offset for offset, _ in rows], np.int64)


@settings(deadline=None)
@given(ROWS, ROWS)
def test_only_the_last_of_a_key_is_one_that_stays(noted: Rows, asked: Rows) -> None:
    table = np.zeros((64, SLOT_WORDS), np.uint64)
    last = plain.last_of_each(noted)
    assert note_keys(table, SECRET, *columns(noted)) == len(last)
    assert note_keys(table, SECRET, *columns(noted)) == 0, "all are known"
    out = np.ones(len(asked), np.bool_)
    kept = find_last(table, SECRET, *columns(asked), out)
    expected = [key is not None and last.get(key, -1) <= offset for offset, key in asked]
    assert out.tolist() == expected
    assert kept == sum(expected)


def test_interpreted_they_are_the_same() -> None:
    noting: Any = note_keys
    finding: Any = find_last
    table, out = np.zeros((4, SLOT_WORDS), np.uint64), np.zeros(2, np.bool_)
    rows = columns([(3, b"a"), (4, b"b")])
    with np.errstate(over="ignore"):
        assert noting.py_func(table, SECRET, *rows) == 2
        assert finding.py_func(table, SECRET, *columns([(3, b"a"), (2, b"b")]), out) == 1
    assert out.tolist() == [True, False]


def test_where_a_key_lies_depends_on_the_secret() -> None:
    """data fault 17: whoever knew the hash could choose keys that meet in one place."""
    keys: Rows = [(i, str(i).encode()) for i in range(40)]
    places = []
    for secret in (SECRET, np.zeros(2, np.uint64)):
        table = np.zeros((64, SLOT_WORDS), np.uint64)
        assert note_keys(table, secret, *columns(keys)) == len(keys)
        places.append(table.tolist())
    assert places[0] != places[1]
