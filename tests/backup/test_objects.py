"""The filer's objects of a snapshot."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.backup.objects import belongs, bring, bring_others
from smq.filer.local import LocalStore
from smq.testing.memory_store import MemoryStore

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
