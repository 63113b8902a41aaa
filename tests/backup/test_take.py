"""Taking a snapshot: refusals before anything is created.

tests/cli/test_snapshot.py takes them of brokers under load.
"""

import errno
import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from smq.app.process.status import ProcessStatus, Status
from smq.app.supervisor.datadir import DataDirectory
from smq.backup import take
from smq.backup.objects import bring
from smq.backup.take import Refused, Taking, prepare
from smq.filer.local import LocalStore
from smq.filer.store import OVERWRITE
from smq.model.errors import StoreError
from smq.store.store import Store
from tests.backup.test_files import dropped, pages_of

STATUS = Status(
    cluster_id="c",
    bootstrap="",
    http="",
    supervisor_pid=1,
    started_ms=1,
    cluster_block="",
    log_memories=[],
    ring_bytes=1,
    wal_segment_bytes=1,
    filer_root="",
    processes={},
)


def taking(tmp_path: Path) -> Taking:
    prepare(tmp_path / "s", tmp_path / "data", tmp_path / "filer").close()
    filer = LocalStore(tmp_path / "filer")
    return Taking(tmp_path / "data", filer, tmp_path / "s", None, lambda _: None)


def served_once(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "data")
    directory.start(1)
    directory.close()
    Store.open(tmp_path / "data" / "store.sqlite").close()
    (tmp_path / "data" / "logs" / "0").mkdir(parents=True)


def test_one_at_a_time_and_what_a_killed_one_has_linked_goes(tmp_path: Path) -> None:
    served_once(tmp_path)
    pins = tmp_path / "data" / "pins"
    (pins / "0").mkdir(parents=True)
    (pins / "0" / "x.wal").touch()
    fd = os.open(pins, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(Refused, match="another snapshot"):
        taking(tmp_path).run()
    assert (pins / "0" / "x.wal").exists()
    assert not (tmp_path / "s").exists()
    os.close(fd)
    about = taking(tmp_path).run()
    assert about.file_count == 3
    assert not [*pins.iterdir()]


@pytest.mark.parametrize("pid", [0, 8])
def test_a_log_is_not_cut_while_its_shard_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    """Data fault 23, its kind: a shard that recovers has cleared the rows of its partitions, so the
    cut would not know of a DeleteRecords that was answered before."""
    served_once(tmp_path)
    pids = iter([7, pid])

    def status(_: Path) -> tuple[Status, None]:
        processes = {"shard-0": ProcessStatus(pid=next(pids), ready=True)}
        return replace(STATUS, processes=processes), None

    monkeypatch.setattr(take, "read_status", status)
    with pytest.raises(Refused, match="a shard was restarted meanwhile"):
        taking(tmp_path).run()


def test_files_of_users_are_not_older_than_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 23, its kind: files that were replaced or deleted while the filer was copied were
    in the snapshot as they had been before."""
    served_once(tmp_path)
    filer, calls = LocalStore(tmp_path / "filer"), list[Any]()
    filer.put("docs/a", b"old")
    filer.put("docs/b", b"gone")

    def brings(*each: Any) -> None:
        bring(*each)
        if not calls:
            with filer.writing("docs/a", OVERWRITE) as sink:
                sink.write(b"new")
            filer.delete("docs/b")
        calls.append(each)

    monkeypatch.setattr(take, "bring", brings)
    taking(tmp_path).run()
    found = LocalStore(tmp_path / "s" / "filer")
    assert [(each.key, found.get(each.key)) for each in found.list()] == [("docs/a", b"new")]


def test_a_snapshots_copies_of_objects_leave_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_once(tmp_path)
    (tmp_path / "filer/docs").mkdir(parents=True)
    dropped(tmp_path / "filer/docs/a")
    link = os.link

    def link_no_object(source: Path, target: Path, **rest: Any) -> None:
        if source.is_relative_to(tmp_path / "filer"):
            raise OSError(errno.EXDEV, "two file systems")
        link(source, target, **rest)

    monkeypatch.setattr(os, "link", link_no_object)
    taking(tmp_path).run()
    copied = tmp_path / "s" / "filer/docs/a"
    assert not copied.samefile(tmp_path / "filer/docs/a")
    assert not pages_of(copied)


def test_a_snapshot_fails_if_the_filer_lacks_a_file_of_the_manifest(tmp_path: Path) -> None:
    served_once(tmp_path)
    store = Store.open(tmp_path / "data" / "store.sqlite")
    store._database.change("PRAGMA foreign_keys = OFF")
    store.commit()
    line = "INSERT INTO segments VALUES (1, 0, 1, 'raw', 'topics/gone'" + ", 0" * 11 + ")"
    store._database._connection.execute("PRAGMA foreign_keys = OFF")
    store._database.change(line)
    store.commit()
    store.close()
    with pytest.raises(StoreError, match="topics/gone: the manifest names it"):
        taking(tmp_path).run()
    assert not (tmp_path / "s").exists()


def test_a_place_that_the_broker_uses_or_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    for place in ("data/s", "filer", "filer/s"):
        with pytest.raises(Refused, match="which the broker uses"):
            prepare(tmp_path / place, tmp_path / "data", tmp_path / "filer")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine").touch()
    with pytest.raises(Refused, match="not empty"):
        taking(tmp_path)
    with pytest.raises(Refused, match="is no data directory"):
        Taking(tmp_path / "d", LocalStore(tmp_path), tmp_path / "t", None, lambda _: None)._run()
