"""A file that an operator names holds nobody who reads it."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from smq.model.named_files import PIECE_BYTES, UnusableNamedFile, read_named


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, 2 * PIECE_BYTES + 1])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    assert read_named(path, 3 * PIECE_BYTES) == path.read_bytes()


def test_a_link_leads_to_a_file(tmp_path: Path) -> None:
    """Kubernetes mounts secrets so."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    assert read_named(str(tmp_path / "link")) == b"x"


def test_a_file_has_at_most_as_many_bytes_as_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("12345")
    assert read_named(path, 5) == b"12345"
    with pytest.raises(UnusableNamedFile, match=r"^it has over 4 bytes$"):
        read_named(path, 4)


@pytest.fixture(params=["a pipe", "a pipe with a writer", "a device", "a link to a device"])
def never_ends(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path, opened = tmp_path / "named", list[int]()
    match request.param:
        case "a device":
            path = Path("/dev/zero")
        case "a link to a device":
            path.symlink_to("/dev/zero")
        case what:
            os.mkfifo(path)
            if what == "a pipe with a writer":
                opened.append(os.open(path, os.O_RDWR))
    yield path
    for fd in opened:
        os.close(fd)


def test_a_pipe_and_a_device_are_refused(never_ends: Path) -> None:
    for purpose in ("properties", ""):
        with pytest.raises(UnusableNamedFile, match="no file, but a pipe or a device"):
            read_named(never_ends, passed_on_as=purpose)


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_named(tmp_path / "none")
    with pytest.raises(UnusableNamedFile, match=r"^Is a directory$"):
        read_named(tmp_path)


def test_a_pipe_of_the_shell_is_read_to_its_end_where_a_command_says_so() -> None:
    reading, writing = os.pipe()
    path, written = f"/dev/fd/{reading}", b"x" * 100_000  # More than a pipe takes at once.
    with closing(os.fdopen(reading, "rb")):
        with pytest.raises(UnusableNamedFile):
            read_named(path)

        def write() -> None:
            with os.fdopen(writing, "wb") as out:
                out.write(written)

        writer = threading.Thread(target=write)
        writer.start()
        assert read_named(path, passed_on_as="properties") == written
        writer.join()


def test_reading_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(UnusableNamedFile):
            read_named(path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_pipe_of_the_shell_is_there_for_each_who_reads_it() -> None:
    """Somebody who reads an empty file of properties connects without TLS and login."""
    for written in (b"first", b"second"):  # Of another pipe, which may have the same descriptor.
        reading, writing = os.pipe()
        with closing(os.fdopen(reading, "rb")):
            os.write(writing, written)
            os.close(writing)
            path = f"/dev/fd/{reading}"
            assert [read_named(path, passed_on_as="properties") for _ in range(3)] == [written] * 3


def test_a_pipe_of_the_shell_is_read_for_one_purpose() -> None:
    """A user's password was the text of the properties that came by the same pipe."""
    reading, writing = os.pipe()
    with closing(os.fdopen(reading, "rb")):
        os.write(writing, b"sasl.username=admin")
        os.close(writing)
        path = f"/dev/fd/{reading}"
        read_named(path, passed_on_as="properties")
        with pytest.raises(UnusableNamedFile, match=r"bytes once, and was read as properties$"):
            read_named(path, passed_on_as="--password-file")
