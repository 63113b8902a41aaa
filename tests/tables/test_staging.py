"""Segments as files, wherever they lie."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.filer.store import OVERWRITE, Store
from smq.model.segments import Segment
from smq.store.manifest import WritableManifest
from smq.tables.plan import Unreadable
from smq.tables.staging import Files
from smq.testing.memory_store import MemoryStore
from smq.testing.sealing import FakeShard
from tests.sealer.sealed import batch, manifest_in, seal


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[WritableManifest]:
    with manifest_in(tmp_path) as manifest:
        manifest._database.commit()
        yield manifest


def sealed(store: Store, manifest: WritableManifest) -> list[Segment]:
    shard = FakeShard([batch(0, 4), batch(4, 2, key=b"\xff"), batch(6)])
    seal(store, shard, manifest, sealed_end=0, end=shard.end)
    manifest._database.commit()
    return manifest.segments(1)


def test_files_of_this_host_are_read_where_they_lie(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "filer")
    segments = sealed(store, manifest)
    files = Files(store, tmp_path / "staging")
    files.fetch(segments)
    assert [files.path(each) for each in segments] == [store.root / each.path for each in segments]
    assert not (tmp_path / "staging").exists()


def test_copies_are_made_once_and_checked(manifest: WritableManifest, tmp_path: Path) -> None:
    store = MemoryStore()
    segments = sealed(store, manifest)
    Files(store, tmp_path / "staging").fetch(segments[:1])
    assert [path.name for path in (tmp_path / "staging").rglob("*.*")] == [
        Path(segments[0].path).name
    ]
    store.put(segments[0].path, b"not read again", OVERWRITE)
    files = Files(store, tmp_path / "staging")
    files.fetch(segments)
    for each in segments[1:]:
        assert files.path(each).read_bytes() == store.get(each.path)
    assert files.path(segments[0]).stat().st_size == segments[0].bytes


def test_a_file_that_differs_from_its_segment_is_not_kept(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    store = MemoryStore()
    first, second, third = sealed(store, manifest)
    altered = bytearray(store.get(first.path))
    altered[10] ^= 1
    store.put(first.path, altered, OVERWRITE)
    store.put(second.path, b"short", OVERWRITE)
    store.delete(third.path)
    files = Files(store, tmp_path / "staging")
    for segment, complaint in ((first, "CRC"), (second, "length"), (third, "no such object")):
        with pytest.raises(Unreadable, match=complaint):
            files.fetch([segment])
        with pytest.raises(Unreadable, match="cannot be read"):
            files.path(segment)
    assert not [path for path in (tmp_path / "staging").rglob("*") if path.is_file()]


def test_a_staging_path_that_is_no_directory_is_refused(
    manifest: WritableManifest, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = MemoryStore()
    segments = sealed(store, manifest)
    with pytest.raises(Unreadable, match="cannot be copied to"):
        Files(store, tmp_path / "file").fetch(segments)
