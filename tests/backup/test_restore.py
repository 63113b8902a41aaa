"""Restoring: counters and generations rise; unfinished work begins anew."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from smq.app.process.clock import monotonic_ms, replaced
from smq.app.process.machine import boot_id
from smq.app.process.program import command
from smq.app.supervisor import timeline
from smq.app.supervisor.datadir import RESTORING, read_meta
from smq.app.supervisor.timeline import resume
from smq.backup import folder
from smq.backup.held import NotWhole
from smq.backup.restore import EPOCHS_SKIPPED, IDS_SKIPPED, Restoring
from smq.backup.take import Refused
from smq.backup.wal import SEGMENT_BYTES_MAX
from smq.filer.local import LocalStore
from smq.filer.store import Facts
from smq.log.files.checkpoint import FILE_NAME, FILE_NAME_BEFORE
from smq.log.losses import BOOT_FILE
from smq.model.catalog import Leadership, Moved, Topic
from smq.model.errors import StoreError
from smq.security.acls import Operation
from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.published import UserCredential
from smq.store.access import stored
from smq.store.migrations import MIGRATIONS
from smq.store.store import Store
from smq.store.stored_version import stored_version
from tests.backup.test_frames import framed
from tests.backup.test_take import served_once, taking
from tests.log.files.test_checkpoint import craft
from tests.log.logs import batch
from tests.security.test_authorizer import rule
from tests.store.test_migrations import made_by

DAY_MS, WALL_MS = 86_400_000, 1_700_000_000_000


def restoring(
    tmp_path: Path, *, is_new_cluster: bool = False, with_users: bool = True
) -> Restoring:
    root = tmp_path / "filer2"
    return Restoring(
        tmp_path / "s",
        tmp_path / "b",
        LocalStore(root),
        str(root),
        None,
        is_new_cluster,
        lambda _: None,
        with_users,
    )


def snapshot(tmp_path: Path, *topics: Topic) -> None:
    served_once(tmp_path)
    store = Store.open(tmp_path / "data" / "store.sqlite")
    for topic in topics:
        store.add_topic(topic, 0)
    store.commit()
    store.close()
    LocalStore(tmp_path / "filer").put("docs/a", b"a")
    (tmp_path / "data" / "logs" / "0" / "checkpoint").write_bytes(b"")
    taking(tmp_path).run()


@pytest.mark.parametrize("is_new_cluster", [True, False])
def test_a_restore_continues_ids_and_generations_above_those_in_use(
    tmp_path: Path, *, is_new_cluster: bool
) -> None:
    snapshot(tmp_path)
    restoring(tmp_path, is_new_cluster=is_new_cluster).run()
    before, after = read_meta(tmp_path / "data"), read_meta(tmp_path / "b")
    assert after.generation - before.generation in EPOCHS_SKIPPED
    assert (after.cluster_id != before.cluster_id) == is_new_cluster
    store = Store.open(tmp_path / "b" / "store.sqlite")
    assert store.allocate("producer_id", 1) in IDS_SKIPPED
    assert store.allocate("coordinator_epoch", 1) in range(10**4, 10**7 + 10)
    store.close()
    assert (tmp_path / "b" / "logs" / "0" / BOOT_FILE).read_bytes()
    assert (tmp_path / "filer2" / "docs" / "a").read_bytes() == b"a"


def test_leaderships_come_along_and_the_next_epoch_is_above_theirs(tmp_path: Path) -> None:
    served_once(tmp_path)
    store = Store.open(tmp_path / "data" / "store.sqlite")
    topic = Topic("t", UUID(int=1), (1,), (0,))
    store.add_topic(topic, 0)
    moved = Moved(2, None, 2, (Leadership(0, 0, 0, 10), Leadership(2, 0, 10, None)))
    store.leaderships.save(1, moved)
    store.commit()
    store.close()
    taking(tmp_path).run()
    restoring(tmp_path).run()
    store = Store.open(tmp_path / "b" / "store.sqlite")
    assert store.manifest.topics() == [replace(topic, moves={0: moved})]
    store.close()
    assert read_meta(tmp_path / "b").generation > moved.epoch


@pytest.mark.parametrize("with_users", [True, False])
def test_users_and_rules_come_along_unless_they_are_to_be_left(
    tmp_path: Path, *, with_users: bool
) -> None:
    served_once(tmp_path)
    (tmp_path / "data" / "logs" / "0" / "checkpoint").write_bytes(b"")
    store = Store.open(tmp_path / "data" / "store.sqlite")
    keys = ScramCredential(b"s", b"k", b"k", 4096)
    store.access.put_credential(UserCredential("alice", ScramMechanism.SCRAM_SHA_256, keys))
    store.access.add_rules([rule("a", Operation.READ)])
    store.commit()
    store.close()
    secret = tmp_path / "data" / "decoys.secret"
    secret.write_bytes(b"secret")
    taking(tmp_path).run()
    _, told = restoring(tmp_path, with_users=with_users).run()
    brought = tmp_path / "b" / "decoys.secret"
    assert brought.exists() == with_users, "without it, who does not exist gets another salt"
    if with_users:
        assert brought.read_bytes() == secret.read_bytes()
        assert brought.stat().st_mode & 0o777 == 0o600
    found = stored(tmp_path / "b" / "store.sqlite")
    assert told == found
    assert [each.user for each in found.credentials] == ["alice"] * with_users
    assert found.rules == [rule("a", Operation.READ)] * with_users


@pytest.mark.parametrize("back", [1, 4])
def test_a_snapshot_of_an_earlier_version_is_migrated(tmp_path: Path, back: int) -> None:
    """It was restored, and said that it was not."""
    snapshot(tmp_path)
    source = tmp_path / "s"
    about = folder.read(source)
    (source / folder.UNFINISHED).touch()
    for name in (folder.STORE, folder.FILES, folder.ABOUT):
        (source / name).unlink()
    made_by(len(MIGRATIONS) - back, source / folder.STORE).close()
    folder.finish(source, about)
    restoring(tmp_path).run()
    assert stored_version(tmp_path / "b" / folder.STORE) == len(MIGRATIONS)


def test_a_restored_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Who made the snapshot could write into the restored broker's records."""
    snapshot(tmp_path)
    made = tmp_path / "s" / "filer" / "docs" / "a"
    made.chmod(0o666)
    restoring(tmp_path).run()
    restored = tmp_path / "filer2" / "docs" / "a"
    assert not restored.samefile(made)
    assert restored.stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("name", ["logs/0/checkpoint", "filer/docs/a"])
@pytest.mark.parametrize("make", [os.symlink, lambda _, path: os.mkfifo(path)])
def test_a_file_that_gives_way_to_a_link_or_a_pipe_ends_a_restore(
    tmp_path: Path, name: str, make: Callable[[Path, Path], None]
) -> None:
    """A file of the restorer's was published, or the restore hung with its locks held."""
    snapshot(tmp_path)
    (tmp_path / "secret").write_text("mine alone")
    replaced_one = tmp_path / "s" / name

    class Replaces(LocalStore):
        def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
            if not replaced_one.is_symlink():  # The snapshot has been looked at.
                replaced_one.unlink()
                make(tmp_path / "secret", replaced_one)
            return super().list(prefix, after)

    with pytest.raises(NotWhole, match=f"{name} is neither a file nor a directory"):
        replace(restoring(tmp_path), filer=Replaces(tmp_path / "filer2")).run()
    assert not list((tmp_path / "filer2").rglob("a"))
    assert not (tmp_path / "b" / folder.STORE).exists()


def test_a_rule_of_no_kind_is_refused(tmp_path: Path) -> None:
    served_once(tmp_path)
    taking(tmp_path).run()
    with closing(sqlite3.connect(tmp_path / "s" / "store.sqlite")) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("INSERT INTO acls VALUES (99, 'a', 3, 'User:a', '*', 3, 3)")
        database.commit()
    with pytest.raises(StoreError, match="a rule of a kind that there is not: somebody"):
        restoring(tmp_path).run()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE partitions SET log = 99", "has partitions in logs that are not in its meta.json"),
        ("DELETE FROM counters", "'counters' has not all of them: somebody has changed"),
    ],
)
def test_a_store_that_no_broker_can_serve_is_refused_and_leaves_nothing(
    tmp_path: Path, change: str, said: str
) -> None:
    """The broker ended at each start, or the restore with a trace."""
    served_once(tmp_path)
    store = Store.open(tmp_path / "data" / "store.sqlite")
    store.add_topic(Topic("flights", UUID(int=7), (1, 2), (0, 0), {}), 0)
    store.commit()
    store.close()
    taking(tmp_path).run()
    with closing(sqlite3.connect(tmp_path / "s" / "store.sqlite")) as database:
        database.execute(change)
        database.commit()
    with pytest.raises((Refused, StoreError), match=said):
        restoring(tmp_path).run()
    assert {each.name for each in (tmp_path / "b").iterdir()} <= {
        "lock",
        "supervisor.lock",
        RESTORING,
    }


def left_in(target: Path) -> set[str]:
    """What is in a data directory beside the locks and the mark."""
    return {each.name for each in target.iterdir()} - {"lock", "supervisor.lock", RESTORING}


@pytest.mark.parametrize("topics", [None, {("kafka", "flights")}])
@pytest.mark.parametrize(("at", "size"), [(2**63, 1), (7, 1), (1 << 40, SEGMENT_BYTES_MAX + 1)])
def test_a_segment_that_no_log_has_is_refused_and_leaves_nothing(
    tmp_path: Path, topics: set[tuple[str, str]] | None, at: int, size: int
) -> None:
    """The broker ended at each start: it reads the position. A hole filled memory and disk."""
    snapshot(tmp_path, Topic("flights", UUID(int=7), (1,), (0,), {}))
    path = tmp_path / "s" / "logs" / "0" / f"{at:020d}.wal"
    path.touch()
    os.truncate(path, size)
    with pytest.raises(StoreError, match="it is no segment of a log"):
        replace(restoring(tmp_path), topics=topics).run()
    assert left_in(tmp_path / "b") == set()


@pytest.mark.parametrize("kind", [MemoryError, ValueError, KeyboardInterrupt])
def test_a_restore_that_any_exception_ends_leaves_nothing(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    """Only errors that somebody had thought of made it clear the directory."""
    snapshot(tmp_path)

    def fail(_length: int) -> None:
        assert (tmp_path / "b" / folder.STORE).exists()
        raise kind

    with pytest.raises(kind):
        replace(restoring(tmp_path), advance=fail).run()
    assert left_in(tmp_path / "b") == set()


@pytest.mark.parametrize("topics", [None, {("kafka", "flights")}])
def test_a_checkpoint_that_no_log_writes_is_refused_and_leaves_nothing(
    tmp_path: Path, topics: set[tuple[str, str]] | None
) -> None:
    """It has a right check, and ended each start of the restored broker."""
    snapshot(tmp_path, Topic("flights", UUID(int=7), (1,), (0,), {}))
    (tmp_path / "s" / "logs" / "1").mkdir()
    craft(tmp_path / "s" / "logs" / "1" / FILE_NAME, b"[]", np.zeros(0, np.int64))
    with pytest.raises(StoreError, match="no log writes what is in it: somebody has changed it"):
        replace(restoring(tmp_path), topics=topics).run()
    assert left_in(tmp_path / "b") == set()


def test_a_checkpoint_beyond_all_bounds_is_refused_unread(tmp_path: Path) -> None:
    snapshot(tmp_path)
    (tmp_path / "s" / "logs" / "1").mkdir()
    path = tmp_path / "s" / "logs" / "1" / FILE_NAME
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(NotWhole, match="has over 536870912 bytes"):
        restoring(tmp_path).run()
    assert left_in(tmp_path / "b") == set()


@pytest.mark.parametrize("topics", [None, {("kafka", "flights")}])
def test_a_log_with_a_frame_that_no_log_writes_is_refused_and_leaves_nothing(
    tmp_path: Path, topics: set[tuple[str, str]] | None
) -> None:
    """The restored shard ended at each start."""
    snapshot(tmp_path, Topic("flights", UUID(int=7), (1,), (0,), {}))
    path = tmp_path / "s" / "logs" / "0" / f"{1 << 40:020d}.wal"
    path.write_bytes(framed(batch(b"value"), 1 << 40, generation=7))
    with pytest.raises(StoreError, match="its frames are of up to generation 7, and by"):
        replace(restoring(tmp_path), topics=topics).run()
    assert left_in(tmp_path / "b") == set()


@pytest.mark.parametrize("name", [folder.CLOCK, folder.DECOYS])
def test_a_file_that_is_larger_than_a_start_allows_is_refused(tmp_path: Path, name: str) -> None:
    """The restore succeeded, and each start was refused."""
    snapshot(tmp_path)
    about = folder.read(tmp_path / "s")
    (tmp_path / "s" / folder.UNFINISHED).touch()
    for each in (folder.FILES, folder.ABOUT):
        (tmp_path / "s" / each).unlink()
    with (tmp_path / "s" / name).open("ab") as file:
        os.truncate(file.fileno(), 400 << 20)
    folder.finish(tmp_path / "s", about)
    with pytest.raises(NotWhole, match=f"{name} has over 1048576 bytes"):
        restoring(tmp_path).run()
    assert left_in(tmp_path / "b") == set()


def test_a_restore_leaves_out_look_up_tables_and_other_files_beside_segments(
    tmp_path: Path,
) -> None:
    """A start believes a look-up table below the position that its checkpoint calls synced: from
    another hand it would name any offsets, at any place."""
    snapshot(tmp_path)
    for name in (f"{0:020d}.index", FILE_NAME_BEFORE, BOOT_FILE, "notes"):
        (tmp_path / "s" / "logs" / "0" / name).write_bytes(b"theirs")
    segment = tmp_path / "s" / "logs" / "0" / f"{1 << 40:020d}.wal"
    segment.write_bytes(b"whole".ljust(64))
    restoring(tmp_path).run()
    restored = tmp_path / "b" / "logs" / "0"
    assert {each.name for each in restored.iterdir()} == {FILE_NAME, BOOT_FILE, segment.name}
    assert (restored / BOOT_FILE).read_bytes() == boot_id()


def numbers(tmp_path: Path) -> tuple[int, int, int]:
    """The next generation, producer id and coordinator epoch of a restored broker."""
    store = Store.open(tmp_path / "b" / "store.sqlite")
    found = store.allocate("producer_id", 1), store.allocate("coordinator_epoch", 1)
    store.close()
    return read_meta(tmp_path / "b").generation, *found


def test_two_restores_of_a_snapshot_have_no_number_in_common(tmp_path: Path) -> None:
    """Data fault 24: both gave the same producer ids out, and an acked record of one producer
    was dropped as a duplicate of another's."""
    snapshot(tmp_path)
    restoring(tmp_path).run()
    one = numbers(tmp_path)
    for each in ("b", "filer2"):
        shutil.rmtree(tmp_path / each)
    restoring(tmp_path).run()
    for mine, others in zip(one, numbers(tmp_path), strict=True):
        assert mine != others


def test_the_numbers_are_drawn_and_durable_before_the_mark_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 24: a broker must not serve with numbers that a power loss takes back."""
    snapshot(tmp_path)
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def note(fd: int) -> None:
        sync(fd)
        name = Path(f"/proc/self/fd/{fd}").readlink().relative_to(tmp_path)
        synced.append((str(name), (tmp_path / "b" / RESTORING).exists()))

    monkeypatch.setattr(os, "fsync", note)
    restoring(tmp_path).run()
    for needed in ("b/store.sqlite", "b/meta.json", "b"):
        assert (needed, True) in synced
    assert synced[-1] == (".", False)


@pytest.mark.parametrize("passed_ms", [0, 7, 3_600_000])
@pytest.mark.parametrize("is_same_boot", [True, False])
def test_a_restored_broker_continues_the_time_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, passed_ms: int, is_same_boot: bool
) -> None:
    """Data fault 2: the broker began 20 days behind, and the clock was mended. A restore began
    another line at wall time: an acked batch of an idempotent producer was appended twice,
    transactions seconds old were aborted, ids and offsets were forgotten."""
    system = {"wall": WALL_MS - 20 * DAY_MS, "monotonic": 50_000}
    wall, monotonic = lambda: system["wall"] * 10**6, lambda: system["monotonic"] * 10**6
    with replaced(wall, monotonic):
        (tmp_path / "data").mkdir()
        resume(tmp_path / "data")
        system["wall"] = WALL_MS
        system["monotonic"] += 30_000  # Less than the file is old when it is written again.
        cut_ms = monotonic_ms()
        assert cut_ms == WALL_MS - 20 * DAY_MS + 30_000
    with replaced(wall, monotonic):
        snapshot(tmp_path)
        restoring(tmp_path).run()
        system["wall"] += passed_ms
        system["monotonic"] = system["monotonic"] + passed_ms if is_same_boot else 3
        if not is_same_boot:
            monkeypatch.setattr(timeline, "boot_id", lambda: b"of another host")
        resume(tmp_path / "b")
        assert monotonic_ms() == cut_ms + passed_ms


def test_a_snapshot_of_an_earlier_version_begins_a_time_line(tmp_path: Path) -> None:
    """It has no time line: its times are of wall clocks."""
    snapshot(tmp_path)
    about = folder.read(tmp_path / "s")
    (tmp_path / "s" / folder.UNFINISHED).touch()
    for name in (folder.CLOCK, folder.FILES, folder.ABOUT):
        (tmp_path / "s" / name).unlink()
    folder.finish(tmp_path / "s", about)
    restoring(tmp_path).run()
    assert not (tmp_path / "b" / folder.CLOCK).exists()


def test_an_unfinished_one_is_begun_anew(tmp_path: Path) -> None:
    snapshot(tmp_path)
    target = tmp_path / "b"
    (target / "logs" / "7").mkdir(parents=True)
    (target / RESTORING).write_text(restoring(tmp_path).said_of(folder.read(tmp_path / "s")))
    (target / "store.sqlite").write_bytes(b"half")
    LocalStore(tmp_path / "filer2").put("docs/a", b"a")
    restoring(tmp_path).run()
    assert not (target / "logs" / "7").exists()
    assert not (target / RESTORING).exists()


def test_the_files_of_another_unfinished_one_are_not_taken(tmp_path: Path) -> None:
    """Data fault 24, its kind: files of users have the same names in each snapshot, and those that
    another restore had brought stayed."""
    snapshot(tmp_path)
    about = replace(folder.read(tmp_path / "s"), taken_ms=1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / RESTORING).write_text(restoring(tmp_path).said_of(about))
    LocalStore(tmp_path / "filer2").put("docs/a", b"another")
    with pytest.raises(Refused, match="is not empty; restore into an empty one"):
        restoring(tmp_path).run()


def test_a_restore_refuses_a_directory_or_filer_that_is_not_empty(tmp_path: Path) -> None:
    snapshot(tmp_path)
    LocalStore(tmp_path / "filer2").put("docs/mine", b"a")
    with pytest.raises(Refused, match="is not empty; restore into an empty one"):
        restoring(tmp_path).run()
    (tmp_path / "b" / "mine").touch()
    with pytest.raises(Refused, match="is not empty; restore into a new directory"):
        restoring(tmp_path).run()
    assert (tmp_path / "b" / "mine").exists()


def test_a_second_restore_touches_nothing_of_the_first(tmp_path: Path) -> None:
    """A restore that was started twice lost what the first had written, which ended as if whole."""
    snapshot(tmp_path)
    data_dir, second = str(tmp_path / "b"), list[str]()

    def start_another(_length: int) -> None:
        if not second:
            verb = command("smq.cli.main", "restore", str(tmp_path / "s"))
            done = subprocess.run(
                [*verb, "--data-dir", data_dir], check=False, capture_output=True, text=True
            )
            assert done.returncode == 1
            second.append(done.stderr)

    replace(restoring(tmp_path), advance=start_another).run()
    assert f"is already served by process {os.getpid()}" in second[0]
    for path in (tmp_path / "s" / "logs").rglob("*"):
        assert (tmp_path / "b" / path.relative_to(tmp_path / "s")).exists()
    Store.open(tmp_path / "b" / "store.sqlite").close()
    assert (tmp_path / "filer2" / "docs" / "a").read_bytes() == b"a"
