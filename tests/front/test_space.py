"""Quotas and the disk's reserve, counted."""

from collections import namedtuple
from contextlib import ExitStack
from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.front import space as space_module
from smq.front.space import NO_QUOTA, SHARE, UPLOADS_IN_PARTS_MAX, Space, namespace_of
from smq.model.errors import Full, Unavailable
from smq.security.principals import Principal
from smq.testing.memory_store import MemoryStore

Disk = namedtuple("Disk", "f_bavail f_frsize")


def counted(store: MemoryStore, quota_bytes: int) -> Space:
    space = Space(store, quota_bytes, 0)
    space.end_count(space.count())
    return space


@pytest.mark.parametrize(
    ("key", "namespace"),
    [
        ("payloads/kafka/t/id", "payloads/kafka"),
        ("payloads/x", "payloads/x"),
        ("docs/a/b", "docs"),
        ("readme", "readme"),
    ],
)
def test_a_namespace_stands_behind_payloads_or_first(key: str, namespace: str) -> None:
    assert namespace_of(key) == namespace


def test_existing_objects_count_for_the_quota_and_segments_do_not() -> None:
    store = MemoryStore()
    for key in ("payloads/kafka/t/1", "kafka/x", "docs/a", "topics/kafka/t/partition=0/1.parquet"):
        store.put(key, bytes(10))
    space = counted(store, 30)
    for namespace in ("kafka", "payloads/kafka"):  # Who may write the one may not fill the other.
        space.check(namespace, 20)
        with pytest.raises(
            Full, match=r"the quota of this namespace is 30 bytes .* no room"
        ) as full:
            space.check(namespace, 21)
        assert "10" not in str(full.value)
    space.check("docs", 20)


def test_the_number_of_uploads_in_parts_is_limited_without_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_module, "UPLOADS_IN_PARTS_MAX", 1)
    elsewhere = Space(MemoryStore(), NO_QUOTA, 0)
    for _ in range(2):
        with elsewhere.upload("docs/a"), pytest.raises(Unavailable, match="too many uploads"):
            elsewhere.upload("docs/b").__enter__()
        elsewhere.invariants()
    here = Space(LocalStore(tmp_path), NO_QUOTA, 0)
    with here.upload("docs/a"), here.upload("docs/b"):
        here.invariants()


def test_a_user_has_a_share_of_the_uploads_in_parts() -> None:
    """One user's slow uploads kept all others from theirs."""
    alice, bob = Principal("User", "alice"), Principal("User", "bob")
    space = Space(MemoryStore(), NO_QUOTA, 0)
    with ExitStack() as going_on:
        for number in range(UPLOADS_IN_PARTS_MAX // SHARE):
            going_on.enter_context(space.upload(f"docs/{number}", alice))
        with pytest.raises(Unavailable, match="too many uploads"):
            space.upload("docs/a", alice).__enter__()
        with space.upload("docs/b", bob), space.upload("docs/c"):
            space.invariants()
    with space.upload("docs/a", alice):
        space.invariants()


def test_uploads_on_the_way_count_and_give_back_what_did_not_arrive() -> None:
    space = counted(MemoryStore(), 10)
    with space.upload("docs/a") as first, space.upload("docs/b") as second:
        first.take(6)
        second.take(4)
        for each in (first, second):
            with pytest.raises(Full):
                each.take(1)
        first.arrived(0)
    space.check("docs", 4)
    with pytest.raises(Full):
        space.check("docs", 5)


def test_the_bytes_of_replaced_and_deleted_objects_are_free_again() -> None:
    space = counted(MemoryStore(), 10)
    with space.upload("docs/a") as upload:
        upload.take(6)
        upload.arrived(0)
    with space.upload("docs/a") as upload:
        upload.take(2)
        upload.arrived(6)
    space.check("docs", 8)
    space.removed("docs/a", 2)
    space.check("docs", 10)
    space.removed("docs/never counted", 99)
    with pytest.raises(Full):
        space.check("docs", 11)


def test_an_upload_during_a_count_is_counted() -> None:
    store = MemoryStore()
    space = counted(store, 10)
    space.begin_count()
    held = space.count()
    with space.upload("docs/a") as upload:
        upload.take(6)
        upload.arrived(0)
    space.end_count(held)
    with pytest.raises(Full):
        space.check("docs", 5)


def test_without_a_quota_nothing_is_counted(tmp_path: Path) -> None:
    space = Space(MemoryStore(), NO_QUOTA, 1 << 60)
    assert space.counted
    assert not space.has_quota
    space.check("docs", 1 << 60)  # A store elsewhere has no disk of ours.
    assert not Space(LocalStore(tmp_path), 5, 0).counted


def test_the_disk_keeps_what_the_log_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(LocalStore(tmp_path), NO_QUOTA, 1000)
    monkeypatch.setattr("os.statvfs", lambda _: Disk(20, 100))
    space.check("docs", 1000)
    with pytest.raises(Full, match=r"2000 bytes left, of which the log reserves 1000"):
        space.check("docs", 1001)


@pytest.mark.parametrize("quota_bytes", [NO_QUOTA, 1000])
def test_names_without_bytes_are_forgotten(quota_bytes: int) -> None:
    """Each new first part of a name was remembered for ever, and looked at by each upload."""
    space = counted(MemoryStore(), quota_bytes)
    for n in range(100):
        with space.upload(f"{n}/a") as upload, space.upload(f"{n}/b") as failed:
            upload.take(5)
            upload.arrived(0)
            failed.take(2)
        space.removed(f"{n}/a", 5)
        space.invariants()
    space.begin_count()
    space.end_count(space.count())
    assert space.names == 0


def test_uploads_on_the_way_count_for_a_first_quota() -> None:
    space = Space(MemoryStore(), NO_QUOTA, 0)
    with space.upload("docs/a") as late:
        with space.upload("docs/b") as early:
            early.take(6)
            late.take(2)
            space.limit(10, 0)
            space.begin_count()
            early.arrived(0)
        space.end_count(space.count())
        space.check("docs", 2)
        with pytest.raises(Full):
            space.check("docs", 3)
