"""Who may look into a broker's files."""

import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smq.app.supervisor.modes import close_to_others, passes_by_rules, set_umask
from smq.filer.local import LocalStore
from smq.model.config import GROUP_READS, Config
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.model.setting import PathOrUrl
from tests.another_user import needs_root, read_by
from tests.model.configs import config_of
from tests.shm.forks import forked

BROKER, GROUP, STRANGER = 65_510, 65_511, 65_512


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory that every user of the host may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="smq-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """An operator's, which lets others read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def config(data_dir: Path, mode: str = "0700", filer: Path | None = None) -> Config:
    root = PathOrUrl(filer or data_dir / "filer")
    return replace(Config(), data_dir=data_dir, filer_root=root, filer_mode=mode)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def of_an_earlier_version(data_dir: Path) -> None:
    for name in ("cache/cold", "filer/topics/kafka", "filer/payloads", "filer/.unfinished"):
        (data_dir / name).mkdir(parents=True)
    for name in ("cache/cold/0.batches", "filer/topics/kafka/a.parquet", "store.sqlite"):
        (data_dir / name).write_text("pin=4711")


@needs_root
def test_a_directory_that_others_may_enter_shows_them_no_record(volume: Path) -> None:
    """Door fault 8."""
    of_an_earlier_version(volume)
    assert read_by(STRANGER, STRANGER, volume) == {
        "cache/cold/0.batches",
        "filer/topics/kafka/a.parquet",
        "store.sqlite",
    }
    set_umask(config(volume))
    close_to_others(config(volume))
    with LocalStore(volume / "filer").writing("topics/kafka/b.parquet") as sink:
        sink.write(b"pin=4711")
    assert read_by(STRANGER, STRANGER, volume) == set()
    assert mode_of(volume) == 0o755, "it may be the operator's"


@needs_root
def test_a_group_reads_the_filer_on_request_and_nothing_else(volume: Path) -> None:
    """Door fault 8: `filer.mode`."""
    data_dir = volume / "data"
    data_dir.mkdir(mode=0o700)
    os.chown(data_dir, -1, GROUP)
    data_dir.chmod(0o2700)  # What is made below belongs to the group.
    opened = config(data_dir, GROUP_READS)
    set_umask(opened)
    close_to_others(opened)
    with LocalStore(data_dir / "filer").writing("topics/kafka/b.parquet") as sink:
        sink.write(b"pin=4711")
    (data_dir / "cache" / "0.batches").write_text("pin=4711")
    assert read_by(STRANGER, GROUP, data_dir / "filer") == {"topics/kafka/b.parquet"}
    assert read_by(STRANGER, GROUP, data_dir / "cache") == set()
    assert read_by(STRANGER, STRANGER, data_dir) == set()
    close_to_others(config(data_dir))
    assert read_by(STRANGER, GROUP, data_dir / "filer") == set()


@needs_root
def test_a_volume_of_roots_that_is_open_to_the_pods_group_is_served(volume: Path) -> None:
    """Door fault 8: Kubernetes leaves the root of a volume to root, and opens all to `fsGroup`."""
    of_an_earlier_version(volume)
    for directory, _, files in os.walk(volume):
        os.chown(directory, -1, GROUP)
        Path(directory).chmod(0o2775)
        for name in files:
            os.chown(Path(directory) / name, BROKER, GROUP)
    for name in ("cache", "filer", "filer/topics"):
        os.chown(volume / name, BROKER, GROUP)

    def start() -> None:
        os.setgroups([])
        os.setgid(GROUP)
        os.setuid(BROKER)
        set_umask(config(volume))
        close_to_others(config(volume))

    with forked(start):
        pass
    assert read_by(STRANGER, STRANGER, volume) == set()
    assert mode_of(volume) == 0o2775
    assert mode_of(volume / "cache") == 0o2700


@needs_root
def test_a_directory_that_another_user_made_is_refused(volume: Path) -> None:
    """Door fault 8: he could read what is written there, or put something else in its place."""
    volume.chmod(0o777)
    (volume / "filer").mkdir()
    os.chown(volume / "filer", STRANGER, STRANGER)

    def start() -> None:
        os.setgroups([])
        os.setgid(GROUP)
        os.setuid(BROKER)
        with pytest.raises(SystemExit, match=f"filer belongs to user {STRANGER}"):
            close_to_others(config(volume))

    with forked(start):
        pass


def test_a_filer_elsewhere_keeps_the_mode_of_its_root(tmp_path: Path) -> None:
    """Door fault 8: the operator made that directory; only what SMQ makes in it is SMQ's."""
    lake = tmp_path / "lake"
    for name in ("topics/kafka", "reports"):
        (lake / name).mkdir(parents=True)
    (tmp_path / "data").mkdir()
    close_to_others(config(tmp_path / "data", filer=lake))
    modes = {name: mode_of(lake / name) for name in ("", "topics", "reports")}
    assert modes == {"": 0o755, "topics": 0o700, "reports": 0o755}


def test_the_target_of_an_operators_link_keeps_its_mode(tmp_path: Path) -> None:
    """Door fault 8: in a filer elsewhere; in a data directory there are none (links.py)."""
    elsewhere, data_dir, lake = (tmp_path / name for name in ("elsewhere", "data", "lake"))
    for each in (elsewhere, data_dir, lake):
        each.mkdir()
    (lake / "topics").symlink_to(elsewhere)
    close_to_others(config(data_dir, filer=lake))
    assert mode_of(elsewhere) == 0o755


def test_a_start_names_readers_past_access_rules() -> None:
    authorizer = {"authorizer.class.name": STANDARD_AUTHORIZER}
    bucket, group = {"filer.root": "s3://bucket/prefix"}, {"filer.mode": GROUP_READS}
    for given in ({}, authorizer, bucket, group):
        assert passes_by_rules(config_of(command_line=given)) == ""
    for given, who in ((bucket, "keys of s3://bucket/prefix"), (group, f"group {os.getegid()}")):
        assert who in passes_by_rules(config_of(command_line=authorizer | given))
