"""Locks, generations and refusals of the data directory."""

import errno
import json
import os
from pathlib import Path

import pytest

from shm.layout import WAL_FORMAT
from smq.app.supervisor.datadir import (
    FORMAT_VERSION,
    DataDirectory,
    Meta,
    replace_durably,
    unusable,
)


def in_a_fork(action: object) -> int:
    """Run it in another process; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()  # type: ignore[operator]
            code = 0
        except SystemExit as refusal:
            code = 78 if isinstance(refusal.code, str) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_name_of_a_new_data_directory_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 25, 'look': a power loss would take a directory without a name."""
    synced: list[str] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        fsync(fd)
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    monkeypatch.setattr(os, "fsync", note)
    DataDirectory(tmp_path / "a" / "data").close()
    assert {str(tmp_path), str(tmp_path / "a")} <= set(synced)


def test_the_first_start_is_generation_0_and_each_later_one_takes_the_next(tmp_path: Path) -> None:
    seen: list[Meta] = []
    for _ in range(3):
        directory = DataDirectory(tmp_path / "data")
        seen.append(directory.start(2))
        directory.take_generation()
        directory.close()
    assert [meta.generation for meta in seen] == [0, 2, 4]
    assert len({meta.cluster_id for meta in seen}) == 1
    assert len(seen[0].cluster_id) == 22


def test_logs_are_never_fewer(tmp_path: Path) -> None:
    counts = []
    for shards in (2, 3, 1):
        directory = DataDirectory(tmp_path)
        counts.append(directory.start(shards).log_count)
        directory.close()
    assert counts == [2, 3, 3]


def test_a_second_server_exits_with_the_pid_of_the_first(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)

    def second() -> None:
        with pytest.raises(SystemExit, match=f"already served by process {os.getppid()}; stop it"):
            DataDirectory(tmp_path)

    assert in_a_fork(second) == 0
    directory.close()
    assert in_a_fork(lambda: DataDirectory(tmp_path)) == 0


def test_the_next_start_waits_for_stragglers(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    read, write = os.pipe()
    straggler = os.fork()
    if straggler == 0:
        directory.close_in_child()
        os.read(read, 1)
        os._exit(0)
    directory.close()  # As if the supervisor had died: its lock is free, the data is not.
    with pytest.raises(SystemExit, match="processes of the last run still hold"):
        DataDirectory(tmp_path, stragglers_wait_ms=50)
    os.write(write, b"go")
    DataDirectory(tmp_path).close()
    os.waitpid(straggler, 0)
    os.close(read)
    os.close(write)


CLUSTER = "smq-_5678901234567890x"
WHOLE = {"format_version": 1, "cluster_id": CLUSTER, "log_count": 1, "generation": 4}


@pytest.mark.parametrize(
    "fields",
    [
        {"format_version": FORMAT_VERSION + 1},
        {"format_version": FORMAT_VERSION + 1, "wal_format": "of words"},
        WHOLE | {"wal_format": WAL_FORMAT + 1},
    ],
)
def test_data_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    meta = tmp_path / "meta.json"
    meta.write_text(json.dumps(fields))
    with pytest.raises(
        SystemExit, match=r"meta\.json: made by a newer SMQ: its .* is 2, .*up to 1"
    ):
        DataDirectory(tmp_path)
    assert json.loads(meta.read_bytes()) == fields


def test_where_no_format_of_the_logs_is_said_it_is_the_first_and_is_said_from_now_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "meta.json").write_text(json.dumps(WHOLE))
    directory = DataDirectory(tmp_path)
    assert directory.start(1) == Meta(CLUSTER, 1, 5)
    directory.close()
    said = json.loads((tmp_path / "meta.json").read_bytes())
    assert (said["format_version"], said["wal_format"]) == (FORMAT_VERSION, WAL_FORMAT)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it has no valid format_version"),
        (b"{}", "it has no valid format_version"),
        (b'{"format_version": "x"}', "it has no valid format_version"),
        (b'{"format_version": 1, "cluster_id": "x"}', "it has no valid log_count"),
        (b'{"format_version": 1, "wal_format": "1"}', "it has no valid wal_format"),
    ],
)
def test_a_damaged_meta_file_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "meta.json").write_bytes(content)
    with pytest.raises(
        SystemExit, match=rf"meta\.json is damaged \({why}\); restore it from a backup"
    ):
        DataDirectory(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster_id", "../../home/somebody"),
        ("cluster_id", "/home/somebody"),
        ("cluster_id", ".."),
        ("cluster_id", ""),
        ("cluster_id", CLUSTER + "\n"),
        ("cluster_id", 7),
        ("log_count", -1),
        ("log_count", 10**9),
        ("log_count", True),
        ("generation", 2**31),
        ("generation", -2),
    ],
)
def test_a_crafted_meta_file_is_refused(tmp_path: Path, name: str, value: object) -> None:
    """Door fault 2: the cluster's id was a path, and what it named was deleted at the stop."""
    (tmp_path / "meta.json").write_text(json.dumps(WHOLE | {name: value}))
    with pytest.raises(SystemExit, match=rf"meta\.json is damaged \(it has no valid {name}\)"):
        DataDirectory(tmp_path)


def test_a_start_that_is_refused_leaves_the_directory_to_others(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    with pytest.raises(SystemExit):
        DataDirectory(tmp_path)
    (tmp_path / "meta.json").unlink()
    assert in_a_fork(lambda: DataDirectory(tmp_path)) == 0


def test_a_file_in_the_way_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(SystemExit, match="it is not a directory"):
        DataDirectory(tmp_path / "data")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / "meta.json.new").symlink_to("/dev/full")
    with pytest.raises(SystemExit, match="the disk is full"):
        directory.start(1)
    directory.close()


def test_a_place_where_no_directory_can_be_is_said_so() -> None:
    with pytest.raises(SystemExit, match="/proc/data cannot be used: no directory can be made"):
        DataDirectory(Path("/proc/data"))


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "the disk is full; free some space, or choose another with --data-dir"),
        (errno.EROFS, "it lies on a read-only file system; choose another with --data-dir"),
        (errno.ENOENT, "no directory can be made there; choose another with --data-dir"),
        (errno.EIO, "[Errno 5] Input/output error; choose another with --data-dir"),
    ],
)
def test_unusable_names_the_directory_and_the_reason(number: int, sentence: str) -> None:
    told = unusable(Path("/x"), OSError(number, os.strerror(number)))
    assert told == f"the data directory /x cannot be used: {sentence}"


def test_a_file_is_replaced_whole_and_keeps_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"a long content", b"short"):
        replace_durably(path, content)
        assert path.read_bytes() == content
    assert [*tmp_path.iterdir()] == [path]
