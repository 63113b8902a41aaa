"""One SQLite file: opened, refused with a sentence, committed or rolled back."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from smq.model.errors import MadeByNewer, NotFound, StoreError, Unavailable
from smq.store.database import LOG_BYTES_MAX, Database, refuse_newer


def test_a_database_of_a_newer_version_is_refused_with_a_sentence_and_not_touched(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = path.read_bytes()
    for open_it in (refuse_newer, Database.open):
        with pytest.raises(MadeByNewer, match="made by a newer SMQ: its version is 999, this SMQ"):
            open_it(path)
        assert [*tmp_path.iterdir()] == [path]
        assert path.read_bytes() == before
    with pytest.raises(MadeByNewer, match="999"):
        Database.open_read_only(path)


def test_an_older_database_is_refused_with_its_version(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    refuse_newer(path)
    with pytest.raises(StoreError, match="its version is 1, this SMQ reads"):
        Database.open_read_only(path)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"hello, " * 1000)
    with pytest.raises(
        Unavailable, match=r"it is damaged \(.*not a database\); restore it from a backup"
    ):
        Database.open(path)
    assert path.read_bytes().startswith(b"hello")


def test_a_database_whose_pages_are_damaged_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    with pytest.raises(Unavailable, match=r"it is damaged \(.*\); restore it from a backup"):
        Database.open(path).rows("SELECT * FROM topics")


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="unable to open"):
        Database.open(tmp_path / "absent" / "store.sqlite")


def test_a_reader_makes_no_database(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with pytest.raises(NotFound):
        Database.open_read_only(path)
    assert not path.exists()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    Database.open(path).close()
    reader = Database.open_read_only(path)
    with pytest.raises(Unavailable, match="readonly"):
        reader.change("DELETE FROM topics")
    reader.close()


def test_a_change_the_tables_forbid_is_a_store_error(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "store.sqlite")
    with pytest.raises(Unavailable, match="FOREIGN KEY"):
        database.change("INSERT INTO configs VALUES ('absent', 'a', 'b')")
    with pytest.raises(Unavailable, match="no such table"):
        database.rows("SELECT * FROM absent")
    database.rollback()
    database.close()


def test_a_full_disk_is_a_store_error_and_what_was_committed_stays(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    database = Database.open(path)
    database.change("INSERT INTO topics VALUES ('1', 'kafka', 'kept', 0)")
    database.commit()
    [(pages,)] = database.rows("PRAGMA page_count")
    database.rows(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match="full"):
        database.change_many(
            "INSERT INTO topics VALUES (?, 'kafka', ?, 0)",
            [(str(i), os.urandom(100).hex()) for i in range(2, 2000)],
        )
    database.rollback()
    assert database.rows("SELECT name FROM topics") == [("kept",)]
    database.close()


INSERT = "INSERT INTO replaced_files (replaced_ms, path) VALUES (?, ?)"


def names_after_power_loss(path: Path, synced_bytes: int, directory: Path) -> list[str]:
    """The names in a copy of the database that has so much of its log."""
    copy = directory / path.name
    copy.write_bytes(path.read_bytes())
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{copy}-wal").write_bytes(log[:synced_bytes])
    database = Database.open(copy)
    names = [name for (name,) in database.rows("SELECT path FROM replaced_files ORDER BY path")]
    database.close()
    return names


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of what is synced, at each sync."""
    sizes: list[int] = []
    fdatasync = os.fdatasync

    def note(fd: int) -> None:
        fdatasync(fd)
        sizes.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", note)
    return sizes


def test_a_lazy_commit_is_not_synced_and_the_next_one_that_must_takes_it_along(
    tmp_path: Path, synced: list[int]
) -> None:
    path, elsewhere = tmp_path / "store.sqlite", tmp_path / "elsewhere"
    elsewhere.mkdir()
    database = Database.open(path)
    synced.clear()
    database.change(INSERT, ("1", "first"))
    database.commit()
    assert (len(synced), database.may_lose) == (1, False)
    database.change(INSERT, ("2", "lazy"), lazy=True)
    database.change_many(INSERT, [("3", "lazy too")], lazy=True)
    database.commit()
    assert (len(synced), database.may_lose) == (1, True)
    assert names_after_power_loss(path, synced.pop(), elsewhere) == ["first"]
    synced.clear()
    database.change(INSERT, ("4", "must"))
    database.change(INSERT, ("5", "with it"), lazy=True)
    database.commit()
    assert (len(synced), database.may_lose) == (1, False)
    everything = ["first", "lazy", "lazy too", "must", "with it"]
    assert names_after_power_loss(path, synced[-1], elsewhere) == everything
    synced.clear()
    database.commit()
    assert not synced, "nothing has changed"
    database.close()


def test_no_commit_is_durable_before_the_names_of_the_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 25, 'look': a power loss would take a log without a name, and SQLite ignores that
    its directory cannot be synced."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _fail)
        with pytest.raises(Unavailable, match="No space left"):
            Database.open(tmp_path / "store.sqlite")
    Database.open(tmp_path / "store.sqlite").close()


def test_an_unsynced_commit_of_a_dead_owner_is_durable_before_the_next_one_serves(
    tmp_path: Path, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 8, its kind: the next owner built its state, and answered, from a commit that no
    sync covered, and that the kernel took for written."""
    path, elsewhere = tmp_path / "store.sqlite", tmp_path / "elsewhere"
    elsewhere.mkdir()
    dead = Database.open(path)  # A killed process closes nothing.
    dead.change(INSERT, ("1", "in doubt"))
    dead.sync_file = _fail
    with pytest.raises(Unavailable, match="No space left"):
        dead.commit()
    size = path.with_name("store.sqlite-wal").stat().st_size
    assert synced[-1] < size
    os.utime(path.with_name("store.sqlite-wal"), ns=(0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _fail)
        with pytest.raises(Unavailable, match="No space left"):
            Database.open(path)
    database = Database.open(path)
    assert path.with_name("store.sqlite-wal").stat().st_mtime_ns, "written again"
    assert names_after_power_loss(path, synced[-1], elsewhere) == ["in doubt"]
    assert not database.may_lose
    database.close()
    dead.close()


def test_a_log_that_a_reader_made_long_is_short_again(tmp_path: Path) -> None:
    """Data fault 25, its kind: what has grown once stayed until the next start."""
    path = tmp_path / "store.sqlite"
    database = Database.open(path)
    database.change(INSERT, ("1", "x" * 2 * LOG_BYTES_MAX))
    database.commit()
    log = path.with_name("store.sqlite-wal")
    assert log.stat().st_size > LOG_BYTES_MAX
    for number in range(2, 4):
        database.change(INSERT, (str(number), f"next {number}"))
        database.commit()
    assert log.stat().st_size <= LOG_BYTES_MAX
    database.close()


def test_a_commit_whose_sync_failed_is_written_again(tmp_path: Path) -> None:
    """The kernel may have marked the pages clean: a second sync would succeed and mean nothing."""
    path = tmp_path / "store.sqlite"
    log = path.with_name("store.sqlite-wal")
    database = Database.open(path)
    database.sync_file = _fail
    database.change(INSERT, ("1", "in doubt"))
    with pytest.raises(Unavailable, match="No space left"):
        database.commit()
    assert database.may_lose
    database.rollback()
    reader = sqlite3.connect(path)  # It holds nothing back.
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM topics").fetchall()
    content, synced_ns = log.read_bytes(), list[int]()
    os.utime(log, ns=(0, 0))
    database.sync_file = lambda fd: synced_ns.append(os.fstat(fd).st_mtime_ns)
    database.commit()
    assert synced_ns[0] > 0, "written before the sync"
    assert log.read_bytes() == content
    database.commit()
    assert len(synced_ns) == 1
    reader.close()
    database.close()


def test_a_lazy_commit_is_durable_after_sync_next(tmp_path: Path, synced: list[int]) -> None:
    """Data fault 8, its kind: whoever acts on what shows asks before."""
    database = Database.open(tmp_path / "store.sqlite")
    database.change(INSERT, ("1", "lazy"), lazy=True)
    database.commit()
    synced.clear()
    database.sync_next()
    database.commit()
    assert (len(synced), database.may_lose) == (1, False)
    database.sync_next()
    database.commit()
    assert len(synced) == 1
    database.close()


def _fail(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
