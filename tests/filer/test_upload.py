"""Payloads enter the filer whole, under a name that describes them."""

import os
import stat
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shm.kernels.twin import log as plain
from smq.filer.content import SourceChanged
from smq.filer.local import Draft, LocalStore
from smq.filer.mark import NAME as MARK, mark
from smq.filer.store import CREATE, Mode, Sink, Store
from smq.filer.upload import (
    PIECE_BYTES,
    Naming,
    upload_buffer,
    upload_file,
    upload_stream,
)
from smq.model.errors import AlreadyExists, Full, Unavailable
from smq.model.references import PREFIX, Reference
from smq.testing.faulty_store import Torn, Wrapper
from smq.testing.memory_store import MemoryStore

Disk = namedtuple("Disk", "f_bavail f_frsize")
NAMING = Naming("kafka", "images", "image/tiff", 7, bytes(10))
SIZES = [0, 1, 4096, PIECE_BYTES + 1]


@pytest.fixture(params=["local", "elsewhere"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "filer") if request.param == "local" else MemoryStore()


def keys(store: Store) -> list[str]:
    return [facts.key for facts in store.list()]


def check(store: Store, reference: Reference, data: bytes) -> None:
    """The payload is there, whole, and nothing else is."""
    assert reference.length == len(data)
    assert reference.crc32c == plain.crc32c(data)
    assert reference.content_type == "image/tiff"
    assert keys(store) == [f"{PREFIX}kafka/images/{reference.id}"]
    assert store.get(keys(store)[0]) == data


Way = Callable[[Store, bytes, Path], Reference]


def by_file(store: Store, data: bytes, directory: Path) -> Reference:
    path = directory / "source"
    path.write_bytes(data)
    reference = upload_file(store, NAMING, path)
    assert path.read_bytes() == data
    return reference


def by_buffer(store: Store, data: bytes, directory: Path) -> Reference:
    return upload_buffer(store, NAMING, data)


def by_stream(store: Store, data: bytes, directory: Path) -> Reference:
    return upload_stream(store, NAMING, BytesIO(data))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", [by_file, by_buffer, by_stream])
def test_it_is_there_whole(store: Store, way: Way, size: int, tmp_path: Path) -> None:
    data = os.urandom(size)
    check(store, way(store, data, tmp_path), data)


def test_a_file_that_is_moved_is_gone(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(b"payload")
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    reference = upload_file(store, NAMING, path, move=True)
    check(store, reference, b"payload")
    assert not path.exists()
    if isinstance(store, LocalStore):
        placed = store.local_path(keys(store)[0])
        assert placed is not None
        assert placed.stat().st_ino == inode
        assert placed.stat().st_mtime > 1  # Its age counts from its upload.


@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_is_as_open_as_the_filer_whether_it_is_moved_or_copied(
    tmp_path: Path, mode: int, *, move: bool
) -> None:
    root, path = tmp_path / "filer", tmp_path / "source"
    mark(root, "a cluster")
    (root / MARK).chmod(0o640)
    path.write_bytes(b"payload")
    path.chmod(mode)
    before, store = os.umask(0o022), LocalStore(root)
    try:
        upload_file(store, NAMING, path, move=move)
    finally:
        os.umask(before)
    placed = store.local_path(keys(store)[0])
    assert placed is not None
    assert stat.S_IMODE(placed.stat().st_mode) == 0o640


def test_a_file_with_another_name_is_copied_when_it_is_moved(store: Store, tmp_path: Path) -> None:
    path, other = tmp_path / "source", tmp_path / "other"
    path.write_bytes(b"payload")
    other.hardlink_to(path)
    check(store, upload_file(store, NAMING, path, move=True), b"payload")
    other.write_bytes(b"changed")
    assert store.get(keys(store)[0]) == b"payload"


def test_a_file_of_another_file_system_is_copied_when_it_is_moved(
    store: Store, tmp_path: Path
) -> None:
    with TemporaryDirectory(dir="/dev/shm") as elsewhere:
        path = Path(elsewhere) / "source"
        path.write_bytes(b"payload")
        assert path.stat().st_dev != tmp_path.stat().st_dev
        check(store, upload_file(store, NAMING, path, move=True), b"payload")
        assert not path.exists()


class FullStore(LocalStore):
    def publish(self, draft: Draft, key: str, mode: Mode) -> None:
        self.sweep()
        raise Full(key, "the filesystem is full")


def test_a_file_that_could_not_be_moved_is_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(b"payload")
    os.utime(path, (1, 1))
    with pytest.raises(Full):
        upload_file(FullStore(tmp_path / "filer"), NAMING, path, move=True)
    assert path.read_bytes() == b"payload"


def test_a_pipe_is_read_to_its_end(store: Store) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"payload")
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as stream:
        check(store, upload_stream(store, NAMING, stream), b"payload")


class Breaks(BytesIO):
    """A stream that ends by an error."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 3:
            raise ConnectionResetError("the sender is gone")
        return super().read(4)


def test_of_a_stream_that_breaks_nothing_stays(store: Store) -> None:
    with pytest.raises(ConnectionResetError):
        upload_stream(store, NAMING, Breaks(b"eight by"))
    assert keys(store) == []


def test_of_a_write_that_fails_nothing_stays() -> None:
    store = MemoryStore()
    with pytest.raises(Unavailable):
        upload_buffer(Torn(store, Random(1), 1.0), NAMING, b"payload")
    assert keys(store) == []


def test_uploading_an_existing_payload_again_returns_its_reference(store: Store) -> None:
    first = upload_buffer(store, NAMING, b"payload")
    assert upload_buffer(store, NAMING, b"payload") == first
    check(store, first, b"payload")


@pytest.mark.parametrize("way", [by_file, by_buffer, by_stream])
@pytest.mark.parametrize("key", ["payloads", "payloads/kafka/images"])
def test_an_object_in_the_way_of_a_directory_raises_already_exists(
    way: Way, key: str, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "filer")
    store.put(key, b"an object where a directory should be")
    with pytest.raises(AlreadyExists, match="part of its name is an object"):
        way(store, b"payload", tmp_path)
    assert keys(store) == [key]


def test_a_file_that_is_not_there_says_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        upload_file(store, NAMING, tmp_path / "missing")
    assert keys(store) == []


@pytest.fixture
def pipe() -> Iterator[Path]:
    """What a shell makes of <(command)."""
    reading, writing = os.pipe()
    os.write(writing, b"payload")
    os.close(writing)
    yield Path(f"/dev/fd/{reading}")
    os.close(reading)


def test_a_pipe_with_a_name_is_read_to_its_end(store: Store, pipe: Path) -> None:
    check(store, upload_file(store, NAMING, pipe), b"payload")


def test_a_file_that_does_not_say_its_length_is_read_to_its_end(store: Store) -> None:
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert upload_file(store, NAMING, path).length > 0
    assert store.get(keys(store)[0]).startswith(b"Name:")


def test_only_a_regular_file_is_moved(store: Store, pipe: Path, tmp_path: Path) -> None:
    for path in (pipe, tmp_path):
        with pytest.raises(ValueError, match="is not a regular file"):
            upload_file(store, NAMING, path, move=True)
    assert keys(store) == []


class ChangesMeanwhile(Wrapper):
    """The source is another one as soon as somebody begins to write."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__(MemoryStore())
        self._change = change

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        with super().writing(key, mode) as sink:
            self._change()
            yield sink


@pytest.mark.parametrize("data", [b"", b"short", b"0123456789abcdef"])
def test_a_file_that_changes_while_it_is_sent_is_not_stored(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(b"0123456789ABCDEF")
    store = ChangesMeanwhile(lambda: path.write_bytes(data))
    with pytest.raises(SourceChanged, match=f"{path}: it changed while it was uploaded"):
        upload_file(store, NAMING, path)
    assert keys(store) == []


def test_memory_that_changes_while_it_is_sent_is_not_stored() -> None:
    data = bytearray(b"payload")
    store = ChangesMeanwhile(lambda: data.__setitem__(0, 0))
    with pytest.raises(SourceChanged, match="bytes in memory: it changed"):
        upload_buffer(store, NAMING, data)
    assert keys(store) == []


@pytest.mark.parametrize("length", [0, 5, 100])
def test_a_file_that_changes_while_it_is_copied_is_not_stored(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_clone(*_: object) -> int:
        raise OSError

    def changed(source: int, target: int, count: int) -> int:
        os.truncate(path, length)
        return os.sendfile(target, source, None, count)

    path, store = tmp_path / "source", LocalStore(tmp_path / "filer")
    path.write_bytes(b"0123456789")
    monkeypatch.setattr("fcntl.ioctl", no_clone)
    monkeypatch.setattr("os.copy_file_range", changed)
    with pytest.raises(SourceChanged, match=f"{path}: it changed while it was uploaded"):
        upload_file(store, NAMING, path)
    assert keys(store) == []


def test_a_file_is_read_when_the_kernel_does_not_copy_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first call copies a little, the second one nothing."""

    def refuse(*_: object) -> int:
        raise OSError

    def copied(source: int, target: int, _: int) -> int:
        monkeypatch.setattr("os.copy_file_range", refuse)
        return os.sendfile(target, source, None, 3)

    monkeypatch.setattr("fcntl.ioctl", refuse)
    monkeypatch.setattr("os.copy_file_range", copied)
    store = LocalStore(tmp_path / "filer")
    check(store, by_file(store, b"payload", tmp_path), b"payload")


@pytest.mark.parametrize("way", [by_file, by_buffer, by_stream])
def test_an_upload_does_not_take_the_logs_disk_reserve(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_clone(*_: object) -> int:
        raise OSError

    monkeypatch.setattr("fcntl.ioctl", no_clone)
    monkeypatch.setattr("os.statvfs", lambda _: Disk(20, 100))
    store = LocalStore(tmp_path / "filer", reserve_bytes=1000)
    reference = way(store, bytes(1000), tmp_path)
    with pytest.raises(Full, match=r"2000 bytes left, .* \(filer\.reserve\.bytes\)"):
        way(store, bytes(1001), tmp_path)
    check(store, reference, bytes(1000))


class Gives:
    """A stream that gives these, one for each read."""

    def __init__(self, *pieces: object) -> None:
        self._pieces = iter(pieces)

    def read(self, size: int, /) -> Any:
        return next(self._pieces)


def test_a_stream_that_has_nothing_yet_has_not_ended(store: Store) -> None:
    with pytest.raises(BlockingIOError, match="source returned None"):
        upload_stream(store, NAMING, Gives(b"pay", None, b"load", b""))
    assert keys(store) == []


def test_a_stream_of_text_is_refused(store: Store) -> None:
    with pytest.raises(TypeError, match=r'reading source gives a str; .* "rb"'):
        upload_stream(store, NAMING, Gives("text", ""))
    assert keys(store) == []


def test_a_stream_may_give_any_bytes(store: Store) -> None:
    pieces = (bytearray(b"pay"), memoryview(b"load"), b"")
    check(store, upload_stream(store, NAMING, Gives(*pieces)), b"payload")


@pytest.fixture(autouse=True)
def nothing_unfinished(tmp_path: Path) -> Iterator[None]:
    yield
    unfinished = tmp_path / "filer" / ".unfinished"
    assert not unfinished.exists() or not list(unfinished.iterdir())
