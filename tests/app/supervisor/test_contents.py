"""What a data directory from elsewhere must not have: links, pipes, and sizes without a bound."""

import os
from pathlib import Path

import pytest

from smq.app.supervisor.contents import check_contents
from smq.app.supervisor.datadir import DataDirectory

FILES = [
    *("supervisor.lock", "lock", "meta.json", "meta.json.new", "clock.json", "clock.json.new"),
    *("status.json.new", "store.sqlite", "store.sqlite-wal", "iceberg.sqlite", "restoring"),
    *("logs/0/checkpoint.new", "logs/0/boot", "logs/0/00000000000000000000.wal", "pins/a"),
    *("tables/kafka/t/.delta.json", "filer/docs/a", "filer/.cluster.new"),
]
DIRECTORIES = [
    *("logs", "logs/0", "logs/0/quarantine", "filer", "filer/docs", "filer/.unfinished"),
    *("filer/topics/kafka/t", "cache", "cache/a", "tables", "tables/kafka", "pins"),
]


@pytest.mark.parametrize("name", [*FILES, *DIRECTORIES])
def test_a_start_refuses_a_link_before_it_opens_a_file(tmp_path: Path, name: str) -> None:
    """Door faults 2 and 3, their siblings: files behind a link were overwritten and published."""
    victim, data_dir = tmp_path / "victim", tmp_path / "data"
    if name in DIRECTORIES:
        victim.mkdir()
    else:
        victim.write_text("precious")
    link = data_dir / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    before = sorted(data_dir.rglob("*"))
    with pytest.raises(SystemExit, match=f"{link} is a link"):
        DataDirectory(data_dir)
    assert sorted(data_dir.rglob("*")) == before
    assert victim.is_dir() or victim.read_text() == "precious"


def test_a_link_to_nothing_is_refused_too(tmp_path: Path) -> None:
    """It would be made behind the link."""
    (tmp_path / "lock").symlink_to(tmp_path / "nothing")
    with pytest.raises(SystemExit, match="is a link"):
        check_contents(tmp_path)


@pytest.mark.parametrize("name", ["tables/kafka/t/.iceberg.json", "logs/0/boot", "meta.json"])
def test_a_pipe_is_refused_before_anybody_opens_it(tmp_path: Path, name: str) -> None:
    """Door fault 2, its kind: the sealer waited in the opening of one for ever."""
    pipe = tmp_path / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(SystemExit, match=f"{pipe} is neither a file nor a directory"):
        DataDirectory(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("meta.json", "clock.json", "status.json", "logs/0/boot", "logs/0/checkpoint.before"),
        "decoys.secret",
        *("tables/default/t/iceberg.json", "tables/default/t/delta.seen", "filer/.cluster"),
        "filer/topics/default/t/_delta_log/_last_checkpoint",
    ],
)
def test_a_huge_file_that_is_read_whole_is_refused(tmp_path: Path, name: str) -> None:
    """Door fault 15, its kind: a sparse file in an archive took its length in memory."""
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.truncate(1 << 30)
    with pytest.raises(SystemExit, match=f"{file} has 1073741824 bytes"):
        check_contents(tmp_path)


def test_files_of_users_have_any_size(tmp_path: Path) -> None:
    for name in ("filer/docs/meta.json", "filer/docs/boot", "logs/0/1.wal"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / name).open("wb") as opened:
            opened.truncate(1 << 30)
    check_contents(tmp_path)


def test_the_operator_s_own_links_stay(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/.venv").symlink_to(tmp_path)
    (tmp_path / "smq").symlink_to(tmp_path / "data")
    DataDirectory(tmp_path / "smq").close()
