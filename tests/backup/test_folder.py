"""The folder of a snapshot: whole, or refused with a sentence."""

import json
import os
import shutil
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from smq.app.supervisor.datadir import Meta, meta_text, new_cluster_id
from smq.backup import folder
from smq.backup.folder import About
from smq.backup.held import HeldFolder, NotWhole
from smq.model.config import INT32_MAX
from smq.model.errors import MadeByNewer


def taken(path: Path) -> About:
    with folder.begin(path):
        for name in ("meta.json", "logs/0/00.wal", "filer/a b/c"):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(name.encode())
        return folder.finish(path, About("cluster", 7, "1", None, {"0": 64}))


def relist(path: Path, listed: bytes) -> None:
    """A snapshot whose list of files is another."""
    about = taken(path)
    (path / "files").write_bytes(listed)
    about = replace(about, check=zlib.crc32(listed))
    (path / "snapshot.json").write_text(json.dumps(asdict(about)))


def test_a_finished_snapshot_is_read_again(tmp_path: Path) -> None:
    about = taken(tmp_path / "s")
    assert folder.read(tmp_path / "s") == about
    assert (about.file_count, about.total_bytes) == (3, 9 + 13 + 11)


def test_an_unfinished_one_is_none_and_is_begun_again(tmp_path: Path) -> None:
    folder.begin(tmp_path / "s").close()
    (tmp_path / "s" / "logs").mkdir()
    (tmp_path / "s" / "logs" / "a").touch()
    with pytest.raises(NotWhole, match="is not a complete snapshot"):
        folder.read(tmp_path / "s")
    folder.begin(tmp_path / "s").close()
    assert [each.name for each in (tmp_path / "s").iterdir()] == ["unfinished"]
    folder.remove(tmp_path / "s")
    with pytest.raises(NotWhole, match="there is no directory"):
        folder.read(tmp_path / "s")


def test_a_folder_that_another_process_is_writing_is_not_touched(tmp_path: Path) -> None:
    """Door fault 2: a second snapshot to the same folder removed what the first had written, and
    the first was whole without it."""
    with folder.begin(tmp_path / "s"):
        (tmp_path / "s" / "a").touch()
        with pytest.raises(BlockingIOError):
            folder.begin(tmp_path / "s")
        assert (tmp_path / "s" / "a").exists()
    folder.begin(tmp_path / "s").close()
    assert not (tmp_path / "s" / "a").exists()


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    taken(tmp_path / "s")
    with pytest.raises(FileExistsError):
        folder.begin(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("filer/a b/c", None, "it has no filer/a b/c"),
        ("logs/0/00.wal", b"short", "has 5 bytes, not 13"),
        ("files", b"0 nothing\n", "missing or damaged"),
        ("files", None, "missing or damaged"),
        ("snapshot.json", b"{", "snapshot.json is damaged"),
        ("snapshot.json", b"[]", "snapshot.json is damaged"),
        ("snapshot.json", b"[" * 200_000, "snapshot.json is damaged"),
        ("snapshot.json", b'{"format": 1, "more": 2}', "snapshot.json is damaged"),
        ("snapshot.json", b'{"format": 1e999}', "snapshot.json is damaged"),
        ("snapshot.json", None, "is not a complete snapshot"),
    ],
)
def test_a_half_copied_one_is_refused(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    taken(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(NotWhole, match=words):
        folder.read(tmp_path)


@pytest.mark.parametrize(
    "field",
    [
        {"total_bytes": "many"}, {"total_bytes": None}, {"taken_ms": 1.5}, {"cluster_id": 7},
        {"topics": "all"}, {"topics": [7]}, {"log_ends": ["0"]}, {"log_ends": {"0": None}},
        {"format": 1e999}, {"format": "1"},
    ],
)  # fmt: skip
def test_a_description_with_other_types_is_refused_before_anything_is_restored(
    tmp_path: Path, field: dict[str, Any]
) -> None:
    taken(tmp_path)
    about = json.loads((tmp_path / "snapshot.json").read_text())
    (tmp_path / "snapshot.json").write_text(json.dumps(about | field))
    with pytest.raises(NotWhole, match=r"snapshot\.json is damaged"):
        folder.read(tmp_path)


@pytest.mark.parametrize("listed", [b"\xff", b"many meta.json\n", b"\n", b"5 a\0b\n"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, listed: bytes) -> None:
    relist(tmp_path, listed)
    with pytest.raises(NotWhole, match="files is no list of files"):
        folder.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("snapshot.json", folder.ABOUT_BYTES_MAX + 1, r"snapshot\.json has over"),
        ("files", 1 << 40, r"files is too long a list of 5 files"),
        ("meta.json", 1 << 40, r"meta\.json has over"),
    ],
)
def test_a_file_without_end_is_refused(tmp_path: Path, name: str, size: int, words: str) -> None:
    """A few blocks of a disk took the memory of whoever restored them."""
    taken(tmp_path)
    os.truncate(tmp_path / name, size)
    read = folder.read_meta if name == folder.META else folder.read_held
    with HeldFolder(tmp_path) as held, pytest.raises(NotWhole, match=words):
        read(held)


def test_a_list_of_more_files_than_there_are_is_refused(tmp_path: Path) -> None:
    """Each is looked for, and the list may name one a million times."""
    relist(tmp_path, b"9 meta.json\n" * 6)
    with pytest.raises(NotWhole, match="files lists more files than the 5 that are there"):
        folder.read(tmp_path)


def test_a_name_may_have_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    with folder.begin(tmp_path):
        (tmp_path / "a\u2028b\r").touch()
        about = folder.finish(tmp_path, About("cluster", 7, "1", None))
    assert folder.read(tmp_path) == about


def test_a_generation_that_no_broker_reaches_is_refused(tmp_path: Path) -> None:
    """The restored broker's was no number of 32 bits any more, and each start was refused."""
    for generation, is_refused in ((folder.GENERATION_MAX, False), (INT32_MAX - 1, True)):
        meta = Meta(new_cluster_id(), 1, generation)
        (tmp_path / "meta.json").write_bytes(meta_text(meta))
        with HeldFolder(tmp_path) as held:
            if is_refused:
                with pytest.raises(NotWhole, match=r"meta\.json has the generation 2147483646"):
                    folder.read_meta(held)
            else:
                assert folder.read_meta(held) == meta


def test_a_snapshot_without_its_meta_json_is_none(tmp_path: Path) -> None:
    with HeldFolder(tmp_path) as held, pytest.raises(NotWhole, match=r"meta\.json is not there"):
        folder.read_meta(held)


@pytest.mark.parametrize("name", ["filer/a b/c", "logs/0", "filer/docs", "more"])
def test_a_link_is_refused_before_anything_is_restored(tmp_path: Path, name: str) -> None:
    """Door fault 3: a link in the filer published the restorer's file over HTTP."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"filer/a b/c")
    taken(tmp_path / "s")
    path = tmp_path / "s" / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(outside)
    with pytest.raises(NotWhole, match=f"{name} is neither a file nor a directory"):
        folder.read(tmp_path / "s")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    taken(tmp_path / "s")
    os.mkfifo(tmp_path / "s" / "filer" / "pipe")
    with pytest.raises(NotWhole, match="is neither a file nor a directory"):
        folder.read(tmp_path / "s")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    taken(tmp_path)
    about = json.loads((tmp_path / "snapshot.json").read_text())
    (tmp_path / "snapshot.json").write_text(json.dumps(about | {"format": 2, "more": 1}))
    with pytest.raises(MadeByNewer, match="its format is 2"):
        folder.read(tmp_path)
