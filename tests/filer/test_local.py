"""The conformance suite on a directory, and what only a directory can get wrong."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from threading import Event

import pytest

from smq.filer import local
from smq.filer.local import UNFINISHED, LocalStore
from smq.filer.store import CREATE, OVERWRITE, IfMatch, Mode, Store
from smq.model.errors import AlreadyExists, Full, NotFound, PreconditionFailed, Unavailable
from smq.testing.faulty_store import Flaky, Patient, Slow, Torn
from smq.testing.store_suite import StoreTests


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "filer")


class TestLocalStore(StoreTests):
    @pytest.fixture
    def store(self, store: LocalStore) -> LocalStore:
        return store


class TestPatientAroundFlakyLocalStore(StoreTests):
    @pytest.fixture
    def store(self, store: LocalStore) -> Store:
        return Patient(Flaky(store, Random(1)))


class TestPatientAroundTornLocalStore(StoreTests):
    @pytest.fixture
    def store(self, store: LocalStore) -> Store:
        return Patient(Torn(store, Random(1)))


class TestSlowLocalStore(StoreTests):
    @pytest.fixture
    def store(self, store: LocalStore) -> Store:
        return Slow(store, lambda: None)


def _put_one(put: Callable[[bytes], object], number: int) -> None:
    put(bytes([number]))


def _race(attempts: int, attempt: Callable[[int], object]) -> int:
    """How many of these attempts, made at once, succeed."""

    def succeeds(number: int) -> bool:
        try:
            attempt(number)
        except (AlreadyExists, PreconditionFailed):
            return False
        return True

    with ThreadPoolExecutor(attempts) as threads:
        return sum(threads.map(succeeds, range(attempts)))


def test_of_many_that_create_at_once_exactly_one_wins(store: LocalStore) -> None:
    for round_number in range(20):
        put = partial(store.put, f"a/{round_number}")
        assert _race(8, partial(_put_one, put)) == 1


def test_of_many_that_replace_a_version_at_once_exactly_one_wins(store: LocalStore) -> None:
    version = store.put("a/b", b"x").version
    for _ in range(20):
        put = partial(store.put, "a/b", mode=IfMatch(version))
        assert _race(8, partial(_put_one, put)) == 1
        version = store.head("a/b").version


def test_unfinished_writes_are_swept_when_nothing_has_touched_them(store: LocalStore) -> None:
    """Data fault 8: an old time alone, which a clock may have made, ends no write."""
    with store.draft() as draft:
        os.utime(draft.path, ns=(5_000_000, 5_000_000))
        assert store.sweep() == {draft.path.name: 5}
        os.utime(draft.path, ns=(7_000_000, 7_000_000))
        assert store.sweep({draft.path.name: 5}) == {draft.path.name: 7}
        assert store.sweep({draft.path.name: 7}) == {}
        assert not draft.path.exists()
    assert list(store.list()) == []


def fill_for_ever(store: LocalStore, begun: Connection) -> None:
    with store.writing("a/b") as sink:
        sink.write(b"half")
        begun.send("begun")
        Event().wait()


def test_an_unfinished_file_of_a_killed_process_is_swept_at_once(store: LocalStore) -> None:
    mine, its = Pipe()
    process = get_context("fork").Process(target=fill_for_ever, args=(store, its))
    process.start()
    assert mine.recv() == "begun"
    [left] = (store.root / UNFINISHED).iterdir()
    assert store.sweep() == {left.name: left.stat().st_mtime_ns // 1_000_000}
    process.kill()
    process.join()
    assert store.sweep() == {}
    assert not left.exists()


def test_a_file_being_written_is_not_swept(store: LocalStore, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.write_bytes(b"moved")
    with store.draft() as draft, store.draft() as taken:
        os.write(draft.fd, b"written")
        taken.take(moved)
        assert store.sweep().keys() == {draft.path.name, taken.path.name}
        draft.publish("a/written")
        taken.publish("a/moved")
        assert os.pread(taken.fd, 10, 0) == b"moved"
    assert (store.get("a/written"), store.get("a/moved")) == (b"written", b"moved")
    assert list((store.root / UNFINISHED).iterdir()) == []


def test_of_many_writers_none_is_swept(store: LocalStore) -> None:
    done = Event()

    def sweep() -> None:
        while not done.is_set():
            store.sweep()

    with ThreadPoolExecutor() as pool:
        sweeping = pool.submit(sweep)
        for number in range(300):
            store.put(f"a/{number}", b"x")
        done.set()
        sweeping.result()
    assert len(list(store.list())) == 300


def test_a_write_leaves_no_file_behind(store: LocalStore) -> None:
    store.put("a/b", b"x")
    store.put("a/b", b"y", OVERWRITE)
    with pytest.raises(AlreadyExists):
        store.put("a/b", b"z")
    with pytest.raises(ZeroDivisionError), store.writing("a/c"):
        raise ZeroDivisionError
    assert list((store.root / UNFINISHED).iterdir()) == []


def test_a_full_filesystem_is_unavailable_and_says_so(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(Full, match="a/b: the filesystem is full"):
            store.put("a/b", b"x")
    assert list(store.list()) == []


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_an_object_s_name_is_not_part_of_another_s(store: LocalStore, mode: Mode) -> None:
    store.put("a/b", b"x")
    for key in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(AlreadyExists):
            store.put(key, b"y", mode)
    assert [facts.key for facts in store.list()] == ["a/b"]


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_a_name_that_others_begin_with_says_so(store: LocalStore, mode: Mode) -> None:
    store.put("a/b", b"x")
    with pytest.raises(AlreadyExists, match="its name is a directory of other objects"):
        store.put("a", b"y", mode)


def test_the_last_object_takes_its_directories_along(store: LocalStore) -> None:
    for key in ("a/b/c/d", "a/b/e"):
        store.put(key, b"x")
    store.delete("a/b/c/d")
    assert store.put("a/b/c", b"y").length == 1
    store.delete("a/b/c")
    store.delete("a/b/e")
    with pytest.raises(PreconditionFailed):
        store.put("a/b/e", b"y", IfMatch("version"))
    assert not (store.root / "a").exists()
    assert store.put("a", b"z").length == 1
    store.delete("a")
    assert store.root.exists()
    assert (store.root / UNFINISHED).exists()


def test_a_directory_does_not_go_while_something_is_put_into_it(store: LocalStore) -> None:
    def put_and_delete(number: int) -> None:
        for _ in range(50):
            store.put(f"a/b/{number}", b"x")
            store.delete(f"a/b/{number}")

    assert _race(4, put_and_delete) == 4
    assert not (store.root / "a").exists()


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE, IfMatch("version")])
def test_a_directory_that_is_made_where_an_object_is_to_be_is_looked_at_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    store.put("a/b", b"x")
    is_dir, looks = Path.is_dir, list[Path]()

    def make_behind(path: Path) -> bool:
        found = is_dir(path)
        if path == store.root / "a/c":
            looks.append(path)
            if len(looks) == 1:
                path.mkdir()
        return found

    monkeypatch.setattr(Path, "is_dir", make_behind)
    if isinstance(mode, IfMatch):
        with pytest.raises(PreconditionFailed):
            store.put("a/c", b"y", mode)
    else:
        store.put("a/c", b"y", mode)
        assert store.get("a/c") == b"y"
        assert len(looks) >= 2


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_directories_that_a_killed_writer_left_keep_no_name(store: LocalStore, mode: Mode) -> None:
    store.put("a/b/c/d", b"x")
    (store.root / "a/b/e/f").mkdir(parents=True)
    store.put("a/b/e", b"y", mode)
    assert [facts.key for facts in store.list()] == ["a/b/c/d", "a/b/e"]


def test_a_directory_that_is_a_link_stays(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store.root.mkdir()
    (store.root / "a").symlink_to(tmp_path / "elsewhere")
    store.put("a/b", b"x")
    assert [facts.key for facts in store.list()] == ["a/b"]
    store.delete("a/b")
    assert (store.root / "a").is_dir()


def test_a_file_whose_name_is_no_key_is_not_listed(store: LocalStore) -> None:
    store.put("a/b", b"x")
    for name in (b"\xff", b"new\nline", b"back\\slash", b".hidden"):
        Path(os.fsdecode(os.fsencode(store.root) + b"/" + name)).write_bytes(b"x")
    (store.root / os.fsdecode(b"a/\xff")).mkdir()
    (store.root / os.fsdecode(b"a/\xff") / "c").write_bytes(b"x")
    assert [facts.key for facts in store.list()] == ["a/b"]


def test_a_list_does_not_go_round_in_circles(store: LocalStore) -> None:
    store.put("a/b/c", b"x")
    store.put("d/e", b"x")
    (store.root / "a/b/up").symlink_to(store.root / "a")
    (store.root / "a/b/itself").symlink_to(store.root / "a/b/itself")
    (store.root / "a/b/nowhere").symlink_to(store.root / "nowhere")
    (store.root / "a/b/root").symlink_to(store.root)
    (store.root / "a/beside").symlink_to(store.root / "d")
    (store.root / "d/back").symlink_to(store.root / "a")
    assert [facts.key for facts in store.list()] == [
        "a/b/c",
        "a/beside/e",
        "d/back/b/c",
        "d/e",
    ]


def test_a_reader_keeps_the_version_that_it_opened(store: LocalStore) -> None:
    store.put("a/b", b"first")
    with store.reading("a/b") as reading:
        store.put("a/b", b"second, and longer", OVERWRITE)
        assert b"".join(reading.pieces) == b"first"


def test_an_object_that_is_cut_short_while_it_is_read_is_unavailable(store: LocalStore) -> None:
    store.put("a/b", b"first")
    with store.reading("a/b") as reading:
        os.truncate(store.root / "a/b", 0)
        with pytest.raises(Unavailable, match="truncated"):
            list(reading.pieces)


def test_a_replaced_object_is_always_newer(store: LocalStore) -> None:
    store.put("a/b", b"x")
    path = store.local_path("a/b")
    assert path is not None
    os.utime(path, ns=(2**62, 2**62))
    before = store.head("a/b")
    assert store.put("a/b", b"y", OVERWRITE).version != before.version
    assert store.head("a/b").modified_ms >= before.modified_ms


def test_directories_and_files_survive_a_second_opening(store: LocalStore) -> None:
    store.put("topics/kafka/t/partition=0/x.parquet", b"x")
    again = LocalStore(store.root)
    assert [facts.key for facts in again.list()] == ["topics/kafka/t/partition=0/x.parquet"]


def test_a_root_that_cannot_be_a_directory_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Unavailable, match="files cannot be kept there"):
            LocalStore(root).put("a", b"x")


def test_reading_makes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "filer")
    assert list(store.list()) == []
    assert store.sweep() == {}
    store.delete("a/b")
    with pytest.raises(NotFound):
        store.get("a/b")
    assert not store.root.exists()


def test_a_file_of_another_user_is_outdated_by_a_copy(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 8, its kind: only a file's owner may set its time, and root's programs write
    payloads themselves."""
    store.put("a", b"payload")
    theirs = store.root / "a"
    theirs.chmod(0o644)
    inode, set_time = theirs.stat().st_ino, os.utime

    def utime(file: int, times: tuple[int, int]) -> None:
        if os.fstat(file).st_ino == inode:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        set_time(file, times)

    monkeypatch.setattr(os, "utime", utime)
    store.outdate("a")
    assert store.head("a").modified_ms == 0
    assert store.get("a") == b"payload"
    assert theirs.stat().st_mode & 0o777 == 0o644
    assert [facts.key for facts in store.list()] == ["a"]
    assert not list((store.root / ".unfinished").iterdir())


def test_a_large_directory_is_sorted_in_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting the names of all files at once held the GIL for as long."""
    monkeypatch.setattr(local, "SORTED_AT_ONCE", 3)
    store, keys = LocalStore(tmp_path), [f"d/{n:02}" for n in range(20)] + ["d-a", "d/07-b", "d0"]
    keys += [f"d/{n}/{each}" for n in "ab" for each in range(5)]
    for key in keys:
        store.put(key, b"")
    keys.sort()
    assert [each.key for each in store.list()] == keys
    for after in keys:
        found = [each.key for each in store.list("d/", after)]
        assert found == [each for each in keys if each > after and each.startswith("d/")]
