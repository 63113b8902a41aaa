"""The filer's objects of a snapshot."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.backup.objects import Ways, belongs, bring, bring_others
from smq.filer.local import LocalStore
from smq.testing.memory_store import MemoryStore
from tests.backup.test_files import PAGE, dropped, pages_of

KEYS = ("docs/a", "payloads/default/t/1", "topics/default/t/partition=0/x", "topics/default/u/y")


@pytest.mark.parametrize(("key", "wanted"), [*zip(KEYS, (False, True, True, False), strict=True)])
def test_an_object_belongs_to_a_topic_by_its_key(key: str, *, wanted: bool) -> None:
    assert belongs(key, {("default", "t")}) == wanted
    assert belongs(key, None)
    assert not belongs("topics/", {("default", "t")})


def test_files_are_linked_and_what_is_there_is_left(tmp_path: Path) -> None:
    source, target = LocalStore(tmp_path / "a"), LocalStore(tmp_path / "b")
    for key in KEYS:
        source.put(key, key.encode())
    done: list[tuple[str, int]] = []
    for _ in range(2):
        bring(source, target, {("default", "t")}, lambda *each: done.append(each))
    assert done == [(key, len(key)) for key in KEYS[1:3]] * 2
    assert (tmp_path / "a" / KEYS[1]).samefile(tmp_path / "b" / KEYS[1])
    assert [each.key for each in target.list()] == [*KEYS[1:3]]


def test_where_nothing_can_be_linked_it_is_copied(tmp_path: Path) -> None:
    bucket, again = MemoryStore(), MemoryStore()
    for key in KEYS:
        bucket.put(key, key.encode())
    with TemporaryDirectory(dir="/dev/shm") as other:
        far, local = LocalStore(Path(other)), LocalStore(tmp_path)
        for source, target in ((bucket, far), (far, local), (local, again), (local, again)):
            bring(source, target, None, lambda *_: None)
            bring_others(source, target, lambda *_: None)
            assert [(each.key, target.get(each.key)) for each in target.list()] == [
                (key, key.encode()) for key in KEYS
            ]


def test_copied_objects_leave_the_page_cache_as_it_was(tmp_path: Path) -> None:
    source = LocalStore(tmp_path / "a")
    target = LocalStore(tmp_path / "b", drops_pages=True)
    (tmp_path / "a/topics/default/t").mkdir(parents=True)
    cold, warm = "topics/default/t/cold", "topics/default/t/warm"
    for key in (cold, warm):
        dropped(tmp_path / "a" / key)
    with (tmp_path / "a" / warm).open("rb") as file:
        os.pread(file.fileno(), PAGE, 0)
    bring(source, target, None, lambda *_: None, Ways(link=lambda _path, _to: False))
    pages = [pages_of(tmp_path / name / key) for key in (cold, warm) for name in "ab"]
    assert pages == [False, False, True, False]
    assert all(source.get(key) == target.get(key) for key in (cold, warm))
