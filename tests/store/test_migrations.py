"""A database of any earlier version becomes a new one."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from smq.model.errors import StoreError
from smq.store import migrations
from smq.store.access import stored
from smq.store.database import Database
from smq.store.migrations import FUNCTIONS, MIGRATIONS
from smq.store.rows import StoredGroup, StoredMember
from smq.store.store import Store
from smq.store.stored_version import stored_version


def tables(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return rows


def made_by(version: int, path: Path) -> sqlite3.Connection:
    """A database as an SMQ of that version made it."""
    connection = sqlite3.connect(path)
    for name, function in FUNCTIONS.items():
        connection.create_function(name, 1, function, deterministic=True)
    for script in MIGRATIONS[:version]:
        connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {version}")
    return connection


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_a_database_of_every_earlier_version_becomes_a_new_one(
    tmp_path: Path, version: int
) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    made_by(version, old).close()
    Database.open(old).close()
    Database.open(new).close()
    assert tables(old) == tables(new)


def test_members_of_version_2_keep_their_protocols_which_were_hexadecimal_json(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    old = made_by(2, path)
    old.execute("INSERT INTO groups VALUES ('g', 'consumer', 3, 'range', 'a', NULL)")
    old.executemany(
        "INSERT INTO group_members VALUES ('g', ?, ?, ?, 'c', '/10.0.0.1', 10000, 60000, ?, ?)",
        [
            (0, "a", None, '[["range", "00ff"], ["\\u00e9", ""]]', b"\x00 work"),
            (1, "b", "i", "[]", b""),
            (2, "c", None, '[["range", "%s"]]' % ("ab" * 5000), b""),
        ],
    )
    old.commit()
    old.close()

    def member(place: int, name: str, instance: str | None, *known: tuple[str, bytes]) -> Any:
        work = b"\x00 work" if place == 0 else b""
        return StoredMember(
            name, instance, "c", "/10.0.0.1", 10_000, 60_000, work, tuple(known), place
        )

    store = Store.open(path)
    members = (
        member(0, "a", None, ("range", b"\x00\xff"), ("é", b"")),
        member(1, "b", "i"),
        member(2, "c", None, ("range", b"\xab" * 5000)),
    )
    assert store.groups() == [StoredGroup("g", "consumer", 3, "range", "a", members)]
    store.delete_group("g")
    assert store.groups() == []
    assert store.manifest._database.rows("SELECT * FROM group_members") == []
    store.close()


def test_a_step_that_fails_is_not_taken_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    before = tables(path)
    steps = (*migrations.MIGRATIONS, "CREATE TABLE half (a); CREATE TABLE half (a);")
    monkeypatch.setattr("smq.store.database.MIGRATIONS", steps)
    with pytest.raises(Exception, match="already exists"):
        Database.open(path)
    assert tables(path) == before


def test_rows_that_requests_could_make_in_version_20_keep_no_broker_from_a_start(
    tmp_path: Path,
) -> None:
    """Letters that are no UTF-8 were replaced, by three times as many bytes."""
    path, replaced = tmp_path / "store.sqlite", "\ufffd" * 20_000
    old = made_by(20, path)
    rules = [("t", "User:a", "*"), (replaced, "User:a", "*"), ("t", f"User:{replaced}", "*")]
    rules.append(("t", "User:a", replaced))
    rules.append(("t", f"{replaced}:a", "*"))
    for rule in rules:
        old.execute("INSERT INTO acls VALUES (2, ?, 3, ?, ?, 3, 3)", rule)
    for user in ("alice", "unix", "unix/root", replaced):
        old.execute(
            "INSERT INTO scram_credentials VALUES (?, 1, x'00', x'00', x'00', 4096)", (user,)
        )
    for number, ratio in enumerate(("0.5_0", "0.\u0665"), start=1):
        topic = f"{number:032}"
        old.execute("INSERT INTO topics VALUES (?, 'kafka', ?, 0)", (topic, f"t{number}"))
        old.execute("INSERT INTO partitions VALUES (?, ?, 0, 0, 0)", (number, topic))
        old.execute(
            "INSERT INTO configs VALUES (?, 'min.cleanable.dirty.ratio', ?)", (topic, ratio)
        )
    old.commit()
    old.close()
    store = Store.open(path)
    assert sorted(
        each.configs.get("min.cleanable.dirty.ratio", "") for each in store.manifest.topics()
    ) == ["", "0.50"]
    store.close()
    users, kept = stored(path)
    assert [each.user for each in users] == ["alice", "unix"]
    assert {each.pattern.name for each in kept} == {"t"}
    assert len(kept) == 4, "an allowed nobody keeps a topic from everybody"


def test_a_database_that_is_refused_keeps_its_version(tmp_path: Path) -> None:
    """Its own version could not serve it any more, and a later one neither."""
    path = tmp_path / "store.sqlite"
    old = made_by(len(MIGRATIONS) - 2, path)
    old.execute("INSERT INTO acls VALUES (2, '', 3, 'User:a', '*', 3, 3)")
    old.commit()
    old.close()
    before = tables(path)
    with pytest.raises(StoreError, match="a rule that is about nothing or nobody"):
        Database.open(path)
    assert stored_version(path) == len(MIGRATIONS) - 2
    assert tables(path) == before


def test_opening_twice_takes_no_step_twice(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    Database.open(path).close()
    assert len(tables(path)) > len(MIGRATIONS)


def test_times_of_the_future_in_segments_of_version_10_do_not_keep_them_for_ever(
    tmp_path: Path,
) -> None:
    """Data fault 7: the records' own times counted, which nobody had checked."""
    path = tmp_path / "store.sqlite"
    old = made_by(10, path)
    topic = "00" * 16
    old.execute("INSERT INTO topics VALUES (?, 'kafka', 't', 0)", (topic,))
    old.execute("INSERT INTO partitions VALUES (1, ?, 0, 0, 0)", (topic,))
    times = [(0, 5, 10**15), (10, -1, -1), (20, 3, 40)]
    for base, first_ms, last_ms in times:
        line = (1, base, base + 10, "raw", f"p{base}", 9, 0, 10, first_ms, last_ms, 0, 100)
        names = "partition_number, base_offset, end_offset, kind, path, bytes, crc32c, record_count"
        names += ", min_timestamp_ms, max_timestamp_ms, attempt, committed_ms"
        marks = ", ".join("?" * len(line))
        old.execute(f"INSERT INTO segments ({names}) VALUES ({marks})", line)
    old.commit()
    old.close()
    store = Store.open(path)
    found = [(each.oldest_ms, each.newest_ms) for each in store.manifest.segments(1)]
    assert found == [(5, 100), (100, 100), (3, 40)]
    assert [each.max_timestamp_ms for each in store.manifest.segments(1)] == [10**15, -1, 40]
    store.close()
